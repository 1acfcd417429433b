"""Sharing a trained model: a folder in Hugging Face layout with a model card, and exported graphs."""

from __future__ import annotations

import functools
import io
import json
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unseam.choices import importing
from unseam.files import (
    digest,
    read_json,
    read_tensors,
    tensor_shapes,
    write_atomically,
    write_json,
    write_tensors,
    write_text,
)
from unseam.models import VAE
from unseam.training.checkpoint import adopt, check_schema, learner_shapes, read_trial
from unseam.training.learner import blank_learner
from unseam.trial import Trial

__all__ = ["export", "from_pretrained", "push_to_hub", "save_pretrained"]

FORMAT = "unseam-vae-1"


def save_pretrained(model: VAE, folder: str | Path, *, trial: Trial, data: str | None = None) -> None:
    """Write a VAE as a folder in Hugging Face layout: ``config.json``, ``model.safetensors`` and a model card.

    Args:
        model: the VAE, e.g. ``ensemble[0]``.
        folder: where to; files of the same names are replaced.
        trial: that describes the model and its training, e.g. ``ensemble.trials[0]``.
        data: what it was trained on, for the card; the trial's world by default.

    >>> import tempfile, unseam
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=2, batch_size=4)
    >>> model = unseam.train(trial, world=unseam.data.load("linear", size=10))[0]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_pretrained(model, folder, trial=trial)
    ...     from_pretrained(folder).posterior.latent
    2
    """
    ensemble = adopt(model, trial)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / "model.safetensors"
    write_tensors(weights, model.state_dict(), note={"format": "pt"})
    config = {
        "format": FORMAT,
        "digest": digest(weights),
        "library_name": "unseam",
        "shape": list(ensemble.shape),
        "trial": trial.to_dict(),
        "about": ensemble.about,
    }
    write_json(folder / "config.json", config)
    write_text(folder / "README.md", _card(trial, ensemble.shape, data))


def from_pretrained(source: str | Path, *, device: torch.device | str = "cpu") -> VAE:
    """The VAE of a folder that :func:`save_pretrained` wrote, or of such a repository on the Hugging Face hub.

    Nothing in the folder can run code. A name that is no folder is fetched by ``huggingface_hub``, where installed.

    Args:
        source: the folder, or ``owner/name``.
        device: of the model.
    """
    folder = Path(source)
    if not folder.exists() and str(source).count("/") == 1:
        folder = Path(_hub().snapshot_download(str(source), allow_patterns=["*.json", "*.safetensors"]))
    config = read_json(folder / "config.json")
    path = folder / "config.json"
    if config.get("format") != FORMAT or not {"trial", "shape"} <= config.keys():
        raise ValueError(
            f"{path} must have the format {FORMAT!r} that unseam.save_pretrained writes, "
            f"got {config.get('format')!r}"
        )
    check_schema({"trials": [config["trial"]], "shape": config["shape"]}, path)
    weights, shape = folder / "model.safetensors", tuple(config["shape"])
    with importing(False):
        trial = read_trial(config["trial"], 0, path)
        # no memory is taken before the shapes are known to be those of the file
        shapes = learner_shapes(trial, shape, size=1)
        wanted = {name.removeprefix("model."): shapes[name] for name in shapes if name.startswith("model.")}
        held = {name: tuple(found.shape) for name, found in tensor_shapes(weights).items()}
        for name in sorted(wanted.keys() | held.keys()) if wanted else ():
            if wanted.get(name) != held.get(name):
                came = [each.get(name, "nothing") for each in (wanted, held)]
                raise ValueError(f"{weights} must hold {name!r} of shape {came[0]}, got {came[1]}")
        if config.get("digest", own := digest(weights)) != own:
            raise ValueError(
                f"{weights} is damaged: its content has changed since it was written, says its digest in config.json"
            )
        model = blank_learner(trial, shape, size=1).model
    model.load_state_dict(read_tensors(weights))
    return model.to(device).eval()


def push_to_hub(folder: str | Path, repository: str, **options: Any) -> str:
    """Upload a folder of :func:`save_pretrained` to the Hugging Face hub, and return its address.

    Args:
        folder: that was written before.
        repository: ``owner/name``, made where it does not exist.
        options: of ``huggingface_hub.create_repo``, e.g. ``private=True``.
    """
    if not (Path(folder) / "config.json").exists():
        raise ValueError(f"folder must be one that unseam.save_pretrained wrote, got {folder}")
    hub = _hub()
    hub.create_repo(repository, exist_ok=True, **options)
    return str(hub.upload_folder(repo_id=repository, folder_path=str(folder)))


def export(
    model: VAE | nn.Module,
    path: str | Path,
    *,
    part: Literal["decoder", "encoder"] = "decoder",
    example: Tensor | None = None,
) -> None:
    """Write a model as one graph that runs without this package, for any size of the batch.

    A decoder maps z (batch, latent) to E[x|z]; an encoder maps x to posterior mean and variance (or covariance).

    Args:
        model: a VAE, or any module together with an ``example`` of its input.
        path: ``.pt2`` for ``torch.export``, or ``.onnx`` (needs ``onnx`` and ``onnxscript``).
        part: which part of a VAE.
        example: an input (batch, ...) of at least two items; made from a VAE itself.
    """
    path = Path(path)
    if path.suffix not in (".pt2", ".onnx"):
        raise ValueError(f"path must end in .pt2 (torch.export) or .onnx, got {path.name!r}")
    if part not in ("decoder", "encoder"):
        raise ValueError(f"part must be decoder or encoder, got {part!r}")
    module: nn.Module = _Part(model, part) if isinstance(model, VAE) else model
    if example is None:
        if not isinstance(model, VAE):
            raise ValueError(
                "example must be given for a module that is no VAE: one input of two items or more"
            )
        first = next(model.parameters())
        z = torch.zeros(2, model.posterior.latent, device=first.device, dtype=first.dtype)
        with torch.no_grad():
            example = z if part == "decoder" else model.generate(z)
    if len(example) < 2:
        raise ValueError(f"example must hold two items or more, got {len(example)}")
    dynamic = ({0: torch.export.Dim("batch")},)
    module = module.eval()
    if path.suffix == ".pt2":
        content = io.BytesIO()
        torch.export.save(torch.export.export(module, (example,), dynamic_shapes=dynamic), content)
        write_atomically(path, functools.partial(_write, content.getvalue()))
        return
    try:
        import onnxscript  # noqa: F401  torch's own converter needs it
    except ImportError:
        raise ValueError(
            "path must end in .pt2 where onnxscript is absent: pip install onnx onnxscript"
        ) from None
    graph = torch.onnx.export(module, (example,), dynamic_shapes=dynamic, dynamo=True, verbose=False)
    assert graph is not None
    write_atomically(path, graph.save)


class _Part(nn.Module):
    """The decoder or the encoder of a VAE as a module of its own."""

    def __init__(self, model: VAE, part: str) -> None:
        super().__init__()
        self.model, self.part = model, part

    def forward(self, given: Tensor) -> Any:
        return self.model.generate(given) if self.part == "decoder" else tuple(self.model.encode(given))


def _write(content: bytes, path: Path) -> None:
    path.write_bytes(content)


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise ValueError("the Hugging Face hub needs its client: pip install huggingface_hub") from None
    return huggingface_hub


def _card(trial: Trial, shape: tuple[int, ...], data: str | None) -> str:
    """A model card: what the model is, how it was trained, how to use it."""
    title = trial.objective_choice.title
    changed = {name: value for name, value in trial.to_dict().items() if value != Trial().to_dict()[name]}
    rows = "\n".join(f"| `{name}` | `{json.dumps(value)}` |" for name, value in changed.items())
    return f"""---
library_name: unseam
tags: [variational-autoencoder, disentanglement, representation-learning]
---
# {title} with {trial.latent} latents

| | |
|---|---|
| trained on | {data or trial.world} |
| shape of an item | {" × ".join(map(str, shape))} |
| steps, batch size, seed | {trial.steps}, {trial.batch_size}, {trial.seed} |

Fields of its trial that differ from the defaults:

| field | value |
|---|---|
{rows}

```python
import unseam
model = unseam.from_pretrained("path/to/this/folder")  # an nn.Module: model.encode(x), model.generate(z)
```

Which latents are active, and how orthogonal the columns of the decoder's Jacobian are, depends on the data that it is
measured on: `unseam.inspect(model.decode, x=x, encoder=model.encode, likelihood=model.likelihood)`.
"""
