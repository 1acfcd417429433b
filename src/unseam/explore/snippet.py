"""The current state as Python that computes the same."""

from __future__ import annotations

from unseam.explore.exhibit import Exhibit
from unseam.explore.state import State

__all__ = ["snippet"]


def snippet(exhibit: Exhibit, state: State) -> str:
    """Code that decodes the point of a state and measures the decoder there.

    >>> from unseam.explore import exhibit_decoder
    >>> from unseam.explore.state import first_state
    >>> exhibit = exhibit_decoder(lambda z: 2 * z, latent=2)
    >>> print(snippet(exhibit, first_state(exhibit)).splitlines()[3])
    # decoder is yours: (batch, 2) -> (batch, 2)
    """
    active = sorted(exhibit.codes(state.member).alive) or [0]
    point = ", ".join(f"{value:.6g}" for value in state.z)
    lines = [
        "import torch",
        *(["import unseam"] if exhibit.source is not None else []),
        "from unseam.geometry import distance_to_orthogonality, local_geometry, restricted_basis",
        "",
    ]
    if exhibit.source is not None:
        lines += [
            f"model = {exhibit.source}[{state.member}]",
            "decoder, likelihood = model.decoder, model.likelihood",
        ]
    else:
        shape = ", ".join(str(size) for size in exhibit.look.shape)
        lines.append(f"# decoder is yours: (batch, {len(state.z)}) -> (batch, {shape})")
        if exhibit.subjects[state.member].likelihood is None:
            lines.append("likelihood = None")
        else:
            lines.append("# likelihood is yours too: it says what the decoder's outputs mean")
    device, dtype = exhibit.subjects[state.member].kind
    where = "" if device.type == "cpu" or exhibit.source is not None else f', device="{device}"'
    lines.append(f"z = torch.tensor([[{point}]], dtype={dtype}{where})")
    if state.rotation.degrees:
        first, second, degrees = state.rotation
        lines += [
            "",
            "# axes rotated in the plane of two latents (rolinek2019 Eq. 5): same pictures, other axes",
            "from unseam.explore import Rotation, rotation_matrix",
            f"rotation = rotation_matrix({len(state.z)}, Rotation({first}, {second}, {degrees:g})).to(z)",
            "own, decoder = decoder, lambda z: own(z @ rotation)",
            "z = z @ rotation.mT",
        ]
    lines += [
        "",
        "picture = decoder(z) if likelihood is None else likelihood.mean(decoder(z))",
        "geometry = local_geometry(decoder, z, likelihood=likelihood)",
        f"basis = restricted_basis(geometry.pullback, {active}, decoder, z, likelihood=likelihood)  # active latents",
        "dto = distance_to_orthogonality(basis.right_vectors)",
        'print("singular values", basis.singular_values.tolist(), "DtO", dto.item())',
    ]
    return "\n".join(lines) + "\n"
