"""Convolutional encoders and decoders of 64x64 pictures, as published."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from unseam import choices
from unseam.models.initialisation import blank
from unseam.models.normalisation import BatchNorm

__all__ = [
    "faces_decoder",
    "faces_encoder",
    "published_networks",
    "shapes_decoder",
    "shapes_encoder",
    "study_decoder",
    "study_encoder",
]

STUDY = choices.Architecture(
    "study",
    "convolutional, Locatello et al. 2019",
    "unseam.models.convolutional:published_networks",
    fixed=(("name", "study"),),
)
BHOWAL_FACES = choices.Architecture(
    "bhowal_faces",
    "convolutional, bhowal2024 for 3D Faces",
    "unseam.models.convolutional:published_networks",
    fixed=(("name", "bhowal_faces"),),
)
BHOWAL_SHAPES = choices.Architecture(
    "bhowal_shapes",
    "convolutional, bhowal2024 for 3D Shapes and MPI3D",
    "unseam.models.convolutional:published_networks",
    fixed=(("name", "bhowal_shapes"),),
)


class _Layer(NamedTuple):
    """One convolution as Table 3 of bhowal2024 prints it: [channels, kernel, stride, padding] (BN)."""

    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0
    norm: bool = False


def published_networks(
    shape: Sequence[int], features: int, latent: int, output: Sequence[int], *, name: str
) -> tuple[nn.Module, nn.Module]:
    """Encoder and decoder of a published architecture, by its name in a trial."""
    makers = {
        "study": (study_encoder, study_decoder),
        "bhowal_faces": (faces_encoder, faces_decoder),
        "bhowal_shapes": (shapes_encoder, shapes_decoder),
    }
    make_encoder, make_decoder = makers[name]
    return make_encoder(shape, features), make_decoder(latent, output)


def study_encoder(shape: Sequence[int], outputs: int) -> nn.Sequential:
    """Encoder of the 12 600-model study (Locatello et al. 2019): x to features.

    Convolutions 32 4x4, 32 4x4, 64 2x2, 64 2x2, all of stride 2, then 256 units; ReLU. Kernels of 2 in
    the third and fourth layer are those of the study's released code.

    Args:
        shape: data shape (channel, 64, 64).
        outputs: number of features, ``posterior.width``.

    >>> import torch
    >>> with torch.device("meta"):
    ...     study_encoder((1, 64, 64), 20)(torch.zeros(2, 1, 64, 64)).shape
    torch.Size([2, 20])
    """
    layers = [_Layer(32, 4, 2, 1), _Layer(32, 4, 2, 1), _Layer(64, 2, 2), _Layer(64, 2, 2)]
    return nn.Sequential(
        *_convolutions(_picture(shape, "study"), layers, nn.Conv2d),
        nn.Flatten(),
        blank(nn.Linear, 64 * 4 * 4, 256),
        nn.ReLU(),
        blank(nn.Linear, 256, outputs),
    )


def study_decoder(latent: int, shape: Sequence[int]) -> nn.Sequential:
    """Decoder of the 12 600-model study (Locatello et al. 2019): z to pictures.

    256 and 4·4·64 units, then transposed convolutions of 64, 32, 32 and the picture's channels, all 4x4 of
    stride 2; ReLU.

    Args:
        latent: number of latents.
        shape: output shape (channel, 64, 64).

    >>> import torch
    >>> with torch.device("meta"):
    ...     study_decoder(10, (1, 64, 64))(torch.zeros(2, 10)).shape
    torch.Size([2, 1, 64, 64])
    """
    channels = _picture(shape, "study")
    layers = [_Layer(64, 4, 2, 1), _Layer(32, 4, 2, 1), _Layer(32, 4, 2, 1)]
    return nn.Sequential(
        blank(nn.Linear, latent, 256),
        nn.ReLU(),
        blank(nn.Linear, 256, 64 * 4 * 4),
        nn.ReLU(),
        nn.Unflatten(1, (64, 4, 4)),
        *_convolutions(64, layers, nn.ConvTranspose2d),
        blank(nn.ConvTranspose2d, 32, channels, 4, 2, 1),
    )


def faces_encoder(shape: Sequence[int], outputs: int) -> nn.Sequential:
    """Encoder for 3D Faces (bhowal2024 Table 3), batch normalisation throughout: x to features.

    The printed batch normalisation and ReLU on the latents are left out: a posterior mean must be free in sign
    and in scale.

    Arguments are those of :func:`study_encoder`.

    >>> import torch
    >>> with torch.device("meta"):
    ...     faces_encoder((1, 64, 64), 20)(torch.zeros(2, 1, 64, 64)).shape
    torch.Size([2, 20])
    """
    narrow, wide = _Layer(32, 4, 2, 1, norm=True), _Layer(64, 4, 2, 1, norm=True)
    layers = [narrow, narrow, wide, wide, _Layer(512, 4, norm=True)]
    convolutions = _convolutions(_picture(shape, "bhowal_faces"), layers, nn.Conv2d)
    return nn.Sequential(*convolutions, blank(nn.Conv2d, 512, outputs, 1), nn.Flatten())


def faces_decoder(latent: int, shape: Sequence[int]) -> nn.Sequential:
    """Decoder for 3D Faces (bhowal2024 Table 3), batch normalisation throughout: z to pictures.

    The printed layers make 16x16 pictures; [64, 4, 1, 0] after the first of them, the mirror of the encoder's
    fifth layer, makes 64x64. The printed batch normalisation and ReLU on the output are left out.

    Arguments are those of :func:`study_decoder`.

    >>> import torch
    >>> with torch.device("meta"):
    ...     faces_decoder(10, (1, 64, 64))(torch.zeros(2, 10)).shape
    torch.Size([2, 1, 64, 64])
    """
    channels = _picture(shape, "bhowal_faces")
    narrow, wide = _Layer(32, 4, 2, 1, norm=True), _Layer(64, 4, 2, 1, norm=True)
    layers = [_Layer(512, 1, norm=True), _Layer(64, 4, norm=True), wide, wide, narrow]
    return nn.Sequential(
        nn.Unflatten(1, (latent, 1, 1)),
        *_convolutions(latent, layers, nn.ConvTranspose2d),
        blank(nn.ConvTranspose2d, 32, channels, 4, 2, 1),
    )


def shapes_encoder(shape: Sequence[int], outputs: int) -> nn.Sequential:
    """Encoder for 3D Shapes and MPI3D (bhowal2024 Table 3), two layers batch-normalised: x to features.

    The printed ReLU on the latents is left out.

    Arguments are those of :func:`study_encoder`.

    >>> import torch
    >>> with torch.device("meta"):
    ...     shapes_encoder((3, 64, 64), 20)(torch.zeros(2, 3, 64, 64)).shape
    torch.Size([2, 20])
    """
    narrow, wide = _Layer(32, 4, 2, 1), _Layer(64, 4, 2, 1)
    layers = [narrow, narrow, wide, wide._replace(norm=True), _Layer(256, 4, norm=True)]
    convolutions = _convolutions(_picture(shape, "bhowal_shapes"), layers, nn.Conv2d)
    return nn.Sequential(*convolutions, blank(nn.Conv2d, 256, outputs, 1), nn.Flatten())


def shapes_decoder(latent: int, shape: Sequence[int]) -> nn.Sequential:
    """Decoder for 3D Shapes and MPI3D (bhowal2024 Table 3): z to pictures.

    The printed layers make 128x128 pictures; one of the two equal [64, 4, 2, 1] is left out, which makes the
    decoder the mirror of the encoder and its pictures 64x64.

    Arguments are those of :func:`study_decoder`.

    >>> import torch
    >>> with torch.device("meta"):
    ...     shapes_decoder(10, (3, 64, 64))(torch.zeros(2, 10)).shape
    torch.Size([2, 3, 64, 64])
    """
    channels = _picture(shape, "bhowal_shapes")
    layers = [_Layer(64, 4), _Layer(64, 4, 2, 1), _Layer(32, 4, 2, 1), _Layer(32, 4, 2, 1)]
    return nn.Sequential(
        nn.Unflatten(1, (latent, 1, 1)),
        *_convolutions(latent, [_Layer(64, 1)], nn.Conv2d),
        *_convolutions(64, layers, nn.ConvTranspose2d),
        blank(nn.ConvTranspose2d, 32, channels, 4, 2, 1),
    )


def _convolutions(
    channels: int, layers: Sequence[_Layer], kind: type[nn.Conv2d] | type[nn.ConvTranspose2d]
) -> list[nn.Module]:
    modules: list[nn.Module] = []
    for layer in layers:
        # Batch normalisation subtracts any bias: a parameter without effect would only drift with rounding errors.
        shape = (channels, layer.channels, layer.kernel, layer.stride, layer.padding)
        modules.append(blank(kind, *shape, bias=not layer.norm))
        if layer.norm:
            modules.append(blank(BatchNorm, layer.channels))
        modules.append(nn.ReLU())
        channels = layer.channels
    return modules


def _picture(shape: Sequence[int], architecture: str) -> int:
    if len(shape) != 3 or tuple(shape[1:]) != (64, 64):
        raise ValueError(f"{architecture} needs 64x64 pictures (channel, 64, 64), got shape {tuple(shape)}")
    return int(shape[0])
