"""Models of scvi-tools and DRVI: counts, with the library size and the batch held fixed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from unseam.adapters.parts import Decode, kind_of, view
from unseam.geometry import jacobian
from unseam.inspection import Inspection
from unseam.models import NegativeBinomial
from unseam.subject import Subject

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ZeroInflatedCounts", "annotate", "gene_table", "scvi"]

# What scVI adds to means before it takes their logarithm.
_EPSILON = 1e-8
# Others have further networks, or a prior that is not N(0, I).
_KNOWN = {"SCVI", "LinearSCVI", "DRVI"}
_PER_CELL = (
    "dispersion must not depend on the cell, as then it has a Fisher information of its own: train with "
    "dispersion='gene' or 'gene-batch'"
)
# Poisson counts are negative binomials without overdispersion.
_NO_DISPERSION = 30.0


def scvi(model: Any, *, batch: str | None = None, points: int = 1000) -> Subject:
    """A trained ``SCVI``, ``LinearSCVI`` or ``DRVI`` with cells of its own AnnData.

    The decoder maps z to log-means of counts at the median library size of these cells, in their batch; further
    covariates are those of the first of them. Negative-binomial and Poisson likelihoods have the dispersion that was
    learned; for ZINB, whose dropout also depends on z, outputs hold log-means and then the logit that a count is zero,
    in which the Fisher information is diagonal.

    Args:
        model: the model.
        batch: category of the batch key; the most frequent one by default.
        points: most cells, spread over those of the batch.

    >>> scvi(object())
    Traceback (most recent call last):
    ValueError: model must be an SCVI, LinearSCVI or DRVI model, got object; for another one pass its networks: ...
    """
    module = getattr(model, "module", None)
    twin: Any = view(module) if isinstance(module, nn.Module) else None
    parts = ("inference", "generative", "decoder")
    known = _KNOWN & {one.__name__ for one in type(model).__mro__}
    if not known or not all(callable(getattr(twin, name, None)) for name in parts):
        raise ValueError(
            f"model must be an SCVI, LinearSCVI or DRVI model, got {type(model).__name__}; for another one pass its "
            "networks: unseam.wrap(decoder, encoder=encoder, likelihood='negative_binomial', x=counts)"
        )
    cells, counts = _choose_cells(model, batch, points)
    first = next(iter(model._make_data_loader(adata=model.adata, indices=cells[:1], batch_size=1)))
    device, dtype = kind_of(twin)
    first = {name: value.to(device) for name, value in first.items() if isinstance(value, Tensor)}

    def infer(x: Tensor) -> tuple[Tensor, Tensor, dict[str, Any]]:
        x = x.to(device, dtype)
        held = {name: value.expand(len(x), *value.shape[1:]) for name, value in first.items()} | {"X": x}
        with torch.no_grad(), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            found = twin.inference(**twin._get_inference_input(held))
            if found.get("ql") is not None:  # a library size that is inferred, of which found has a draw
                found["library"] = found["ql"].loc
            given = twin._get_generative_input(held, found)
        if "qz" in found:
            return found["qz"].loc, found["qz"].scale.square(), given
        return found["qzm"], found["qzv"], given

    mean, _, given = infer(counts)
    decode, likelihood = _decoder(twin, given, dtype)
    return Subject(
        type(model).__name__,
        Decode(decode, holder=twin),
        mean.shape[1],
        likelihood.to(device, dtype),
        lambda x: infer(x)[:2],
        1.0,
        x=counts,
    )


def _choose_cells(model: Any, batch: str | None, points: int) -> tuple[Any, Tensor]:
    """Indices of cells of one batch, and their counts."""
    manager = model.adata_manager
    codes = np.asarray(manager.get_from_registry("batch")).reshape(-1).astype(int)
    code = int(np.bincount(codes).argmax())
    if batch is not None:
        known = [str(name) for name in manager.get_state_registry("batch").categorical_mapping]
        if batch not in known:
            raise ValueError(f"batch must be one of {', '.join(known)}, got {batch!r}")
        code = known.index(batch)
    cells = np.flatnonzero(codes == code)
    cells = cells[np.linspace(0, len(cells) - 1, min(points, len(cells))).round().astype(int)]
    rows = manager.get_from_registry("X")[cells]
    rows = rows.toarray() if callable(getattr(rows, "toarray", None)) else np.asarray(rows)
    return cells, torch.as_tensor(rows, dtype=torch.float32)


def _decoder(twin: Any, given: dict[str, Any], dtype: torch.dtype) -> tuple[Any, Any]:
    """The map from z to the likelihood's parameter in one cell's batch and covariates, and the likelihood."""
    sizes = given["size_factor"] if getattr(twin, "use_size_factor_key", False) else given["library"]
    size = sizes.median(0, keepdim=True).values
    held = {name: value[:1] for name, value in given.items() if isinstance(value, Tensor) and name != "z"}

    # of a logistic normal a softmax: latents are those before it, whose prior is N(0, I)
    transform = getattr(getattr(twin, "z_encoder", None), "z_transformation", lambda z: z)

    def networks(z: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        z = transform(z)
        own = {name: value.expand(len(z), *value.shape[1:]) for name, value in held.items()}
        at = size.expand(len(z), *size.shape[1:])
        if getattr(twin, "dispersion", None) is None or "batch_index" not in own:
            px = twin.generative(**own | {"z": z, "library": at})["px"]
            return _counts(px)
        z = z if "cont_covs" not in own else torch.cat([z, own["cont_covs"]], 1)
        labels = own["cat_covs"].split(1, 1) if "cat_covs" in own else ()
        batch: tuple[Tensor, ...] = (own["batch_index"],)
        if getattr(twin, "batch_representation", "") == "embedding":
            z = torch.cat([z, twin.compute_embedding("batch", *batch)], 1)
            batch = ()
        _, dispersion, rate, dropout = twin.decoder(twin.dispersion, z, at, *batch, *labels, own.get("y"))
        if twin.dispersion == "gene-cell":
            raise ValueError(_PER_CELL)
        if twin.dispersion == "gene":
            dispersion = twin.px_r
        else:
            index = own["batch_index" if twin.dispersion == "gene-batch" else "y"][:1, 0].long()
            dispersion = twin.px_r[:, index].flatten()
        dispersion = (
            torch.full_like(rate[0], _NO_DISPERSION) if twin.gene_likelihood == "poisson" else dispersion
        )
        return (rate + _EPSILON).log(), dispersion, dropout if twin.gene_likelihood == "zinb" else None

    if str(kind := getattr(twin, "gene_likelihood", "")).startswith("normal"):
        raise ValueError(
            f"model must have counts (nb, zinb or poisson), got gene_likelihood={kind!r}; for it pass its networks: "
            "unseam.wrap(decoder, encoder=encoder, likelihood='gaussian', x=x)"
        )
    with torch.no_grad():
        _, dispersion, dropout = networks(torch.stack([0 * given["z"][0], given["z"][0]]).to(dtype))
    if dispersion.ndim > 1:
        if len(dispersion) > 1 and not torch.equal(dispersion[0], dispersion[1]):
            raise ValueError(_PER_CELL)
        dispersion = dispersion[0]
    if dropout is None:
        likelihood = NegativeBinomial(dispersion.shape)
        likelihood.log_dispersion = nn.Parameter(dispersion.clone(), requires_grad=False)
        return lambda z: networks(z)[0], likelihood
    counts = ZeroInflatedCounts(dispersion)

    def decode(z: Tensor) -> Tensor:
        log_mean, _, logit = networks(z)
        assert logit is not None
        return counts.parameter(log_mean, logit)

    return decode, counts


def _counts(px: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """Log-mean, log-dispersion and dropout logit of a distribution of counts."""
    log_mean, log_dispersion = (getattr(px, name, None) for name in ("log_m", "log_r"))
    if log_mean is not None and log_dispersion is not None:
        return log_mean, log_dispersion, None
    if getattr(px, "theta", None) is None:
        raise ValueError(f"model must have counts (nb, zinb or poisson), got {type(px).__name__}")
    return (px.mu + _EPSILON).log(), px.theta.log(), getattr(px, "zi_logits", None)


class ZeroInflatedCounts(nn.Module):
    r"""Zero-inflated negative binomial whose dropout depends on z, in parameters of diagonal Fisher information.

    With :math:`q = \pi + (1-\pi)\,p_0` the probability of a zero, the likelihood is that of whether a count is zero
    times that of a negative binomial known to be positive. So in :math:`(\log\mu, \operatorname{logit} q)` its Fisher
    information is diagonal, with :math:`q(1-q)` and :math:`(1-q)\,(I(1-p_0) - p_0 I^2)/(1-p_0)^2`, where
    :math:`I = \mu r/(r+\mu)` and :math:`p_0 = (r/(r+\mu))^r`.

    Args:
        log_dispersion: log r per gene.

    >>> counts = ZeroInflatedCounts(torch.zeros(1))
    >>> counts.mean(counts.parameter(torch.zeros(1, 1), torch.zeros(1, 1)))
    tensor([[0.5000]])
    """

    log_dispersion: Tensor

    def __init__(self, log_dispersion: Tensor) -> None:
        super().__init__()
        self.register_buffer("log_dispersion", log_dispersion.clone())

    def parameter(self, log_mean: Tensor, dropout_logit: Tensor) -> Tensor:
        """log μ, then logit q, along the first data axis."""
        zero = self._log_zero(log_mean)
        log_q = torch.logaddexp(logsigmoid(dropout_logit), logsigmoid(-dropout_logit) + zero)
        log_rest = logsigmoid(-dropout_logit) + (-torch.expm1(zero)).log()
        return torch.cat([log_mean, log_q - log_rest], 1)

    def mean(self, output: Tensor) -> Tensor:
        """(1 − q) μ/(1 − p₀)."""
        log_mean, logit = output.chunk(2, 1)
        return (-logit).sigmoid() * log_mean.exp() / -torch.expm1(self._log_zero(log_mean))

    def fisher_weight(self, output: Tensor) -> Tensor:
        """The diagonal for log μ, then for logit q."""
        log_mean, logit = output.double().chunk(2, 1)
        zero = self._log_zero(log_mean)
        positive, plain = -torch.expm1(zero), log_mean.exp() / (1 + (log_mean - self.log_dispersion).exp())
        truncated = (plain * positive - zero.exp() * plain.square()).clamp(min=0) / positive.square()
        rest = (-logit).sigmoid()
        return torch.cat([rest * truncated, logit.sigmoid() * rest], 1).to(output)

    def _log_zero(self, log_mean: Tensor) -> Tensor:
        r = self.log_dispersion
        return r.exp() * (r - torch.logaddexp(r, log_mean))


def gene_table(model: Any, *, batch: str | None = None, points: int = 200) -> pd.DataFrame:
    """How much a step along each latent changes the log-mean of each gene: mean slopes over cells (gene, latent).

    Args:
        model: a trained SCVI, LinearSCVI or DRVI.
        batch: category of the batch key; the most frequent one by default.
        points: most cells.

    >>> gene_table(object())
    Traceback (most recent call last):
    ValueError: model must be an SCVI, LinearSCVI or DRVI model, got object; for another one pass its networks: ...
    """
    import pandas as pd

    subject, names = scvi(model, batch=batch, points=points), model.adata.var_names
    assert subject.encoder is not None and subject.x is not None
    means = subject.encoder(subject.x)[0]
    with torch.no_grad():
        parts = [jacobian(subject.decoder, part)[:, : len(names)].sum(0) for part in means.split(32)]
    slopes = torch.stack(parts).sum(0) / len(means)
    columns = [f"latent {latent}" for latent in range(subject.latent)]
    # names of the type that they have in the AnnData, which then can be written if it could be before
    return pd.DataFrame(slopes.double().cpu().numpy(), index=names.rename("gene"), columns=columns)


def annotate(model: Any, found: Inspection | None = None, *, batch: str | None = None) -> None:
    """Write results into the model's AnnData: codes into ``obsm``, slopes of genes into ``varm``, numbers into ``uns``.

    The keys are ``unseam_codes``, ``unseam_slopes`` and ``unseam``, the last as JSON text, which ``write_h5ad`` keeps.

    Args:
        model: a trained SCVI, LinearSCVI or DRVI.
        found: what was measured of it; measured here by default.
        batch: category of the batch key; the most frequent one by default.

    >>> annotate(object())
    Traceback (most recent call last):
    ValueError: model must be an SCVI, LinearSCVI or DRVI model, got object; for another one pass its networks: ...
    """
    found = scvi(model, batch=batch).inspect() if found is None else found
    model.adata.obsm["unseam_codes"] = model.get_latent_representation()
    model.adata.varm["unseam_slopes"] = gene_table(model, batch=batch)
    model.adata.uns["unseam"] = json.dumps(found.to_dict())
