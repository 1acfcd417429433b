"""An architecture of your own: affine maps with a bend."""

from torch import Tensor, nn

from unseam import choices
from unseam.models import MLP


class Bent(nn.Module):
    """An affine map plus a network of one hidden layer."""

    def __init__(self, inputs, width, outputs) -> None:
        super().__init__()
        self.straight = MLP(inputs, (), outputs)
        self.bend = MLP(inputs, (width,), outputs, activation="tanh")

    def forward(self, x: Tensor) -> Tensor:
        return self.straight(x) + self.bend(x)


def bent(shape, features, latent, output, *, width=16):
    """Encoder from ``shape`` to ``features``, and decoder from ``latent`` to ``output``."""
    return Bent(shape, int(width), features), Bent(latent, int(width), output)


BENT = choices.Architecture(
    "bent",
    "affine with a bend",
    bent,
    options=(choices.Option("width", "hidden units", default=16, member=False),),  # decides shapes
)
