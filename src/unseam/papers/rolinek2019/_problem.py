"""Problem (18, 19) of rolinek2019 on orthogonal matrices and variances, for many problems and starts at once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from unseam.papers.rolinek2019._axes import largest_cosine
from unseam.papers.rolinek2019._draws import normal, orthogonal
from unseam.theory import precision_optimum

__all__ = ["Problems", "draw_problems", "step_size"]


class Problems(NamedTuple):
    """Jacobians with a mean code at each point, under one constraint for all points of a problem.

    A place (problem, point, latent + 1, latent) holds V_i (Eq. 18's, as in J_i V_i) and below it log σ_i², free: the
    constraint is kept by taking what is too much from all alike.
    """

    jacobians: Tensor
    """J_i (problem, point, data, latent)."""
    means: Tensor
    """μ(x^i) (problem, point, latent), which V_i turns along."""
    kl: Tensor
    """C = Σ_i L_≈KL(x^i) (problem,) (Eqs. 10 and 19), in nats."""

    @property
    def budget(self) -> Tensor:
        """C_1 = Σ_ij −log σ_ij² (problem,): what the constraint leaves to the variances (Eq. S35)."""
        points, latent = self.means.shape[-2:]
        return 2 * self.kl + points * latent - self.means.square().sum((-2, -1))

    def least(self) -> Tensor:
        """Closed-form minimum of (18, 19) (problem,)."""
        each = zip(self.jacobians.cpu(), self.budget.tolist(), strict=True)
        values = [precision_optimum(jacobians, budget).loss for jacobians, budget in each]
        return torch.tensor(values, dtype=torch.float64, device=self.means.device)

    def repeat(self, starts: int) -> Problems:
        """Each problem as often as it has starts."""
        return Problems(*(part.repeat_interleave(starts, 0) for part in self))

    def loss(self, place: Tensor, *, logarithm: bool) -> Tensor:
        """Σ_i log E‖J_i ε‖² (problem,), or the same without the logarithm."""
        squares = (self.jacobians @ place[..., :-1, :]).square().sum(-2)
        expected = (squares * self.log_variance(place).exp()).sum(-1)
        return (expected.log() if logarithm else expected).sum(-1)

    def log_variance(self, place: Tensor) -> Tensor:
        """log σ_ij² (problem, point, latent) within the budget."""
        free = place[..., -1, :]
        surplus = (free.sum((-2, -1)) + self.budget) / (free.shape[-2] * free.shape[-1])
        return free - surplus[..., None, None]

    def cosines(self, place: Tensor) -> Tensor:
        """Largest cosine between two columns of any J_i V_i (problem,)."""
        return largest_cosine(self.jacobians @ place[..., :-1, :]).amax(-1)

    def spent(self, place: Tensor) -> Tensor:
        """Σ_i L_≈KL(x^i) (problem,), Eq. 10, with the mean encoder turned along."""
        means = (place[..., :-1, :].mT @ self.means[..., None])[..., 0]
        return (means.square() - self.log_variance(place) - 1).sum((-2, -1)) / 2

    def move(self, place: Tensor, step: Tensor) -> Tensor:
        """V_i turned by Cayley's transform of a skew matrix, log σ_i² shifted."""
        latent = place.shape[-1]
        each = step.unflatten(-1, (place.shape[-3], -1))
        identity = torch.eye(latent, dtype=place.dtype, device=place.device)
        rows, columns = torch.triu_indices(latent, latent, 1, device=place.device)
        upper = identity[rows, :, None] * identity[columns, None, :]
        skew = torch.einsum("...p,pij->...ij", each[..., :-latent], upper - upper.mT)
        turn = torch.linalg.solve_ex(identity + skew, identity - skew).result
        free = place[..., -1:, :] + each[..., None, -latent:]
        return torch.cat([place[..., :-1, :] @ turn, free], -2)


def step_size(points: int, latent: int) -> int:
    """Numbers in a step of :meth:`Problems.move`: angles and variances."""
    return points * latent * (latent + 1) // 2


def draw_problems(
    problems: int, points: int, latent: int, *, kl: float, generator: torch.Generator
) -> Problems:
    """Normal matrices of twice as many rows as latents, columns scaled apart and turned; ``kl`` a latent and point."""
    scale = torch.exp(normal(problems, points, 1, latent, generator=generator) / 2)
    apart = normal(problems, points, 2 * latent, latent, generator=generator) * scale
    turned = apart @ orthogonal(problems, points, latent, latent, generator=generator)
    means = normal(problems, points, latent, generator=generator)
    return Problems(turned, means, torch.full((problems,), kl * points * latent, dtype=torch.float64))
