"""Trainings by pythae, one after another: run by a Python that has it, prints seconds as JSON."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import sys
import time
from typing import Any

import torch
from torch import nn

__all__ = ["main"]


def main() -> None:
    """Train models that differ in their seed as the task says; print seconds of the clock and of the processors."""
    task = json.loads(sys.argv[1])
    torch.set_num_threads(task["threads"])
    x = torch.load(task["data"], weights_only=True)
    logging.disable(logging.WARNING)
    import pythae.pipelines  # noqa: F401 (is not timed)

    begun, used = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(sys.stderr):
        for seed in range(task["trials"]):
            _train(task, x, seed)
    print(json.dumps([time.perf_counter() - begun, time.process_time() - used]))


def _train(task: dict[str, Any], x: torch.Tensor, seed: int) -> None:
    from pythae.models import BetaVAE, BetaVAEConfig
    from pythae.models.base.base_utils import ModelOutput
    from pythae.models.nn import BaseDecoder, BaseEncoder
    from pythae.pipelines import TrainingPipeline
    from pythae.trainers import BaseTrainerConfig

    widths, latent = task["widths"], task["latent"]

    class Encoder(BaseEncoder):
        def __init__(self) -> None:
            super().__init__()
            self.body = _layers([x[0].numel(), *widths])
            self.mean, self.log_variance = (nn.Linear(widths[-1], latent) for _ in range(2))

        def forward(self, x: torch.Tensor) -> Any:
            held = self.body(x.flatten(1))
            return ModelOutput(embedding=self.mean(held), log_covariance=self.log_variance(held))

    class Decoder(BaseDecoder):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(_layers([latent, *widths]), nn.Linear(widths[-1], x[0].numel()))

        def forward(self, z: torch.Tensor) -> Any:
            return ModelOutput(reconstruction=self.body(z).reshape(-1, *x.shape[1:]))

    torch.manual_seed(seed)
    settings = BetaVAEConfig(input_dim=tuple(x.shape[1:]), latent_dim=latent, beta=task["beta"])
    trainer = BaseTrainerConfig(
        output_dir=task["folder"],
        num_epochs=task["epochs"],
        per_device_train_batch_size=task["batch"],
        learning_rate=task["rate"],
        seed=seed,
        no_cuda=True,
    )
    pipeline = TrainingPipeline(BetaVAE(settings, encoder=Encoder(), decoder=Decoder()), trainer)
    pipeline(train_data=x)


def _layers(widths: list[int]) -> nn.Sequential:
    parts = [(nn.Linear(before, after), nn.Tanh()) for before, after in itertools.pairwise(widths)]
    return nn.Sequential(*(one for pair in parts for one in pair))


if __name__ == "__main__":
    main()
