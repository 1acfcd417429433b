"""Early stopping: a callback that ends the training of members whose loss no longer falls."""

from __future__ import annotations

from dataclasses import dataclass

from unseam.training.ensemble import Ensemble

__all__ = ["EarlyStopping"]


@dataclass(frozen=True)
class EarlyStopping:
    """End the training of each member whose term has not improved for some records.

    A record is the mean over ``every`` steps of :func:`unseam.train`. Each member is judged by its own history alone,
    so that its result does not depend on the others, and a resumed run stops where an uninterrupted one does.

    Args:
        patience: number of records without improvement.
        improvement: by how much a record must be below the best so far to count, in the units of the term.
        term: column of the history, e.g. ``loss`` or ``kl``.

    >>> import unseam
    >>> trial = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=4000, batch_size=8, beta=1e-2)
    >>> stopping = EarlyStopping(patience=3)
    >>> ensemble = unseam.train(trial, world=unseam.data.load("linear", size=100), callbacks=[stopping], every=50)
    >>> ensemble.stopped_early[0] < 4000
    True
    """

    patience: int = 10
    improvement: float = 0.0
    term: str = "loss"

    def __post_init__(self) -> None:
        if not isinstance(self.patience, int) or self.patience < 1:
            raise ValueError(f"patience must be a whole number of at least 1, got {self.patience!r}")

    def __call__(self, ensemble: Ensemble) -> list[int]:
        """Members that were training at the last record and have not improved since ``patience`` records."""
        history = ensemble.history
        if self.term not in history:
            terms = [str(name) for name in history if name not in ("member", "step", "alive")]
            raise ValueError(f"term must be one of {', '.join(terms)}, got {self.term!r}")
        now = history[(history["step"] == history["step"].iloc[-1]) & history["alive"]]["member"]
        values = history[history["member"].isin(now)].pivot(index="step", columns="member", values=self.term)
        if len(values) <= self.patience:
            return []
        best, recent = values[: -self.patience].min(), values[-self.patience :].min()
        return [int(member) for member in values.columns[recent >= best - self.improvement]]
