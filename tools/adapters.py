"""Run every adapter on a model of its library itself, check what theory knows of it, and write a dated table."""

from __future__ import annotations

import datetime
import importlib.metadata
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import unseam
from unseam.geometry import jacobian

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(tempfile.mkdtemp())


def pythae() -> unseam.Subject:
    """A β-VAE with probabilities, whose output at z is the sigmoid of ours."""
    from pythae.models import AutoModel, BetaVAE, BetaVAEConfig

    config = BetaVAEConfig(input_dim=(1, 16, 16), latent_dim=5, beta=4.0, reconstruction_loss="bce")
    model = BetaVAE(config)
    subject = unseam.wrap(model, x=torch.rand(500, 1, 16, 16))
    z = torch.randn(3, 5)
    torch.testing.assert_close(subject.picture(z), model.decoder(z).reconstruction.detach())
    assert subject.beta == 4.0 and model.training
    model.save(str(FOLDER / "pythae"))
    again = unseam.wrap(AutoModel.load_from_folder(str(FOLDER / "pythae")), x=subject.x)
    torch.testing.assert_close(again.picture(z), subject.picture(z))
    return subject


def convolutional() -> unseam.Subject:
    """A convolutional VAE of pythae with a Gaussian likelihood."""
    from pythae.models import VAE, VAEConfig
    from pythae.models.nn.benchmarks.mnist import Decoder_Conv_AE_MNIST, Encoder_Conv_VAE_MNIST

    config = VAEConfig(input_dim=(1, 28, 28), latent_dim=6)
    model = VAE(config, encoder=Encoder_Conv_VAE_MNIST(config), decoder=Decoder_Conv_AE_MNIST(config))
    return unseam.wrap(model, x=torch.rand(100, 1, 28, 28))


def diffusers() -> unseam.Subject:
    """An AutoencoderKL with attention and group normalisation, channels last."""
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(32, 64),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        sample_size=16,
    ).to(memory_format=torch.channels_last)
    subject = unseam.wrap(model)
    with torch.no_grad():
        expected = model.eval().decode(subject.z[:2].reshape(2, 4, 8, 8)).sample
    torch.testing.assert_close(subject.picture(subject.z[:2]), expected, atol=1e-5, rtol=1e-4)
    return subject


def tiny() -> unseam.Subject:
    """An AutoencoderTiny, whose encoder gives points; VQModel is refused."""
    from diffusers import AutoencoderTiny, VQModel

    widths = {"encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16)}
    blocks = {"num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}
    refused(lambda: unseam.wrap(VQModel()), "continuous latents")
    return unseam.wrap(AutoencoderTiny(**widths, **blocks), x=2 * torch.rand(50, 3, 16, 16) - 1)


def refused(make: Callable[[], Any], message: str) -> None:
    """Check that something is refused with a message."""
    try:
        make()
    except ValueError as error:
        assert message in str(error), error
    else:
        raise AssertionError(f"nothing was refused: {message}")


def counts() -> Any:
    """Cells of three latents, in two batches."""
    import anndata
    import pandas as pd

    draw = np.random.default_rng(0)
    means = np.exp(draw.normal(size=(400, 3)) @ draw.normal(size=(3, 60)) * 0.7 + 1)
    cells = draw.poisson(means * draw.gamma(2, 0.5, size=means.shape)).astype(np.float32)
    # anndata cannot write the strings of pandas 3 by default
    with pd.option_context("future.infer_string", False):
        return anndata.AnnData(cells, obs=pd.DataFrame({"batch": draw.choice(["a", "b"], 400)}))


def trained(make: Callable[[Any], Any]) -> Any:
    """A model of scvi-tools or DRVI after some epochs."""
    model = make(counts())
    model.train(max_epochs=15, enable_progress_bar=False, logger=False, accelerator="cpu")
    return model


def scvi() -> unseam.Subject:
    """SCVI with ZINB: means are those of its own generative network, and results are written with its cells."""
    import anndata
    import scvi

    scvi.model.SCVI.setup_anndata(data := counts(), batch_key="batch")
    model = trained(lambda _: scvi.model.SCVI(data, n_latent=3))
    subject = unseam.wrap(model, batch="b")
    mean = subject.encoder(subject.x[:4])[0]
    library = subject.x.sum(1).log().median().expand(4, 1)
    model.module.eval()
    with torch.no_grad():
        px = model.module.generative(mean, library, torch.ones(4, 1).long())["px"]
    torch.testing.assert_close(subject.picture(mean), px.mean, atol=1e-4, rtol=1e-3)
    unseam.adapters.annotate(model)
    data.write_h5ad(FOLDER / "cells.h5ad")
    data = anndata.read_h5ad(FOLDER / "cells.h5ad")
    assert data.varm["unseam_slopes"].shape == (60, 3) and "summary" in data.uns["unseam"]
    return subject


def linear_scvi() -> unseam.Subject:
    """LinearSCVI: slopes of genes are its loadings, up to one constant per latent that the softmax takes away."""
    import scvi

    scvi.model.LinearSCVI.setup_anndata(data := counts())
    model = trained(lambda _: scvi.model.LinearSCVI(data, n_latent=3))
    slopes, loadings = (
        table.to_numpy() for table in (unseam.adapters.gene_table(model), model.get_loadings())
    )
    apart = (slopes - slopes.mean(0)) - (loadings - loadings.mean(0))
    assert np.abs(apart).max() < 1e-3 * np.abs(loadings).max(), np.abs(apart).max()
    return unseam.wrap(model)


def logistic_normal() -> unseam.Subject:
    """SCVI with a logistic-normal latent space and an inferred library size: latents are those before the softmax."""
    import scvi

    scvi.model.SCVI.setup_anndata(data := counts(), batch_key="batch")
    options = {"latent_distribution": "ln", "use_observed_lib_size": False, "gene_likelihood": "nb"}
    model = trained(lambda _: scvi.model.SCVI(data, n_latent=3, **options))
    subject = unseam.wrap(model, batch="b")
    z, batch = subject.encoder(subject.x[:4])[0], torch.ones(len(subject.x), 1).long()
    model.module.eval()
    with torch.no_grad():
        library = model.module.inference(subject.x, batch)["ql"].loc.median().expand(4, 1)
        px = model.module.generative(z.softmax(1), library, batch[:4])["px"]
    torch.testing.assert_close(subject.picture(z), px.mean, atol=1e-4, rtol=1e-3)
    scvi.model.SCANVI.setup_anndata(other := counts(), labels_key="batch", unlabeled_category="a")
    refused(lambda: unseam.wrap(scvi.model.SCANVI(other)), "got SCANVI; for another one pass its networks")
    return subject


def drvi() -> unseam.Subject:
    """DRVI with a covariate, whose means are those of its own generative network."""
    from drvi.model import DRVI

    DRVI.setup_anndata(data := counts(), is_count_data=True, categorical_covariate_keys=["batch"])
    model = trained(lambda _: DRVI(data, n_latent=4, encoder_dims=[32], decoder_dims=[32]))
    subject = unseam.wrap(model)
    z = subject.encoder(subject.x[:4])[0]
    model.module.eval()
    first = next(iter(model._make_data_loader(adata=data, indices=[0], batch_size=1)))
    with torch.no_grad():
        given = model.module._get_generative_input(
            first, {"z": z, "library": subject.x.sum(1).median().expand(4)}
        )
        px = model.module.generative(**given | {"cat_covs": given["cat_covs"].expand(4, -1)})["px"]
    torch.testing.assert_close(subject.picture(z), px.mean, atol=1e-4, rtol=1e-3)
    return subject


def lightning() -> unseam.Subject:
    """A LightningModule that stays in its mode."""
    import lightning

    class Autoencoder(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters({"latent_dim": 4})
            self.first, self.last = nn.Linear(12, 8), nn.Sequential(nn.Dropout(), nn.Linear(4, 12), nn.Tanh())

        def encode(self, x: torch.Tensor) -> Any:
            return self.first(x).chunk(2, 1)

        def decode(self, z: torch.Tensor) -> torch.Tensor:
            return self.last(z)

    model = Autoencoder()
    subject = unseam.wrap(model, x=torch.randn(500, 12), log_variance=True, likelihood="gaussian")
    assert model.training and subject.latent == 4
    return subject


def onnx() -> unseam.Subject:
    """A decoder in a file, whose differences are the derivatives of the module."""
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 12))
    path = FOLDER / "decoder.onnx"
    axes = ({0: torch.export.Dim("batch")},)
    torch.onnx.export(model, (torch.zeros(2, 4),), path, dynamo=True, dynamic_shapes=axes, verbose=False)
    subject = unseam.wrap(str(path))
    fixed = FOLDER / "three.onnx"  # a file that takes three points at once
    torch.onnx.export(model, (torch.zeros(3, 4),), fixed, dynamo=True, verbose=False)
    torch.testing.assert_close(
        unseam.wrap(fixed).picture(torch.ones(4, 4)), subject.picture(torch.ones(4, 4))
    )
    refused(lambda: unseam.wrap(path, output="nothing"), "output must be one of")
    z = torch.randn(6, 4)
    with torch.no_grad():
        torch.testing.assert_close(jacobian(subject.decoder, z), jacobian(model, z), atol=1e-3, rtol=1e-2)
    return subject


MODELS: dict[str, tuple[Callable[[], unseam.Subject], str]] = {
    "pythae BetaVAE": (pythae, "pythae"),
    "pythae VAE, convolutional": (convolutional, "pythae"),
    "diffusers AutoencoderKL": (diffusers, "diffusers"),
    "diffusers AutoencoderTiny": (tiny, "diffusers"),
    "scvi-tools SCVI": (scvi, "scvi-tools"),
    "scvi-tools SCVI, logistic normal": (logistic_normal, "scvi-tools"),
    "scvi-tools LinearSCVI": (linear_scvi, "scvi-tools"),
    "DRVI": (drvi, "drvi-py"),
    "Lightning": (lightning, "lightning"),
    "ONNX": (onnx, "onnxruntime"),
}


def main(names: list[str]) -> int:
    """Measure each model, print a table, and write it where all were measured."""
    torch.manual_seed(0)
    lines = ["| model | version | latents | inspect | report |", "|---|---|---|---|---|"]
    failed = []
    for name, (make, package) in MODELS.items():
        if names and name not in names:
            continue
        try:
            subject = make()
            before = time.process_time()
            subject.inspect(points=100 if subject.latent < 100 else 2)
            between = time.process_time()
            unseam.report.write(unseam.report.study(subject, points=100), FOLDER / "page.html")
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")
            continue
        spent = f"{between - before:.1f} s | {time.process_time() - between:.1f} s"
        lines.append(f"| {name} | {importlib.metadata.version(package)} | {subject.latent} | {spent} |")
        print(lines[-1], flush=True)
    if not failed and not names:
        text = f"# Adapters on their libraries, {datetime.date.today()}\n\nBy `make test-adapters`, torch "
        text += (
            f"{torch.__version__}, on {torch.get_num_threads()} thread(s); times are CPU times.\n\n"
            + "\n".join(lines)
            + "\n"
        )
        (ROOT / "benchmarks" / "adapters.md").write_text(text, "utf8")
    print("\n".join(failed), file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))
