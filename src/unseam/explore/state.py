"""The state of a visit: one frozen value, as a link, checked when it is read back, and as Python code."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import torch

from unseam.explore.exhibit import Exhibit
from unseam.explore.rotation import Rotation, rotation_matrix

__all__ = [
    "WIDEST",
    "State",
    "displayed_point",
    "first_state",
    "from_query",
    "model_point",
    "snippet",
    "to_query",
]

# A link longer than this is not one of ours.
_LONGEST = 20_000
# No model has been anywhere near.
_FAR = 1e6
_UNROTATED = Rotation(0, 1, 0.0)
WIDEST = 90.0
"""The largest angle in degrees: from there on the axes have only changed places."""


@dataclass(frozen=True)
class State:
    """What one tab shows."""

    member: int
    """Which model."""
    z: tuple[float, ...]
    """The point, in the model's own latent space."""
    item: int | None = None
    """The item of the world that was encoded last."""
    rotation: Rotation = _UNROTATED
    """How the displayed axes are rotated."""
    plane: tuple[int, int] = (0, 1)
    """The two axes of the map: latents, or factors."""
    space: str = "latents"
    """What the map shows: ``latents`` or ``factors``."""
    colour: int = 0
    """What colours the map: a factor, or, counted after the factors, a latent."""
    other: int | None = None
    """The model that is compared with."""
    same: str = "z"
    """What the two models share: the point ``z`` or the ``item``."""
    follow: bool = False
    """Whether sliders follow singular vectors."""


def first_state(exhibit: Exhibit, member: int = 0) -> State:
    """Where a visit begins: the origin, with map and rotation in the plane of the two most informative latents.

    The map is coloured by the factor that the first of them correlates with most.

    >>> from unseam.explore import exhibit_decoder
    >>> first_state(exhibit_decoder(lambda z: z * torch.tensor([1.0, 2.0]), latent=2)).plane
    (1, 0)
    """
    subject = exhibit.subjects[member]
    first, second = _plane(exhibit, member)
    return State(
        member,
        (0.0,) * subject.latent,
        rotation=Rotation(first, second, 0.0),
        plane=(first, second),
        colour=_colour(exhibit, member, first),
    )


def displayed_point(state: State) -> tuple[float, ...]:
    r"""The point along the displayed axes, :math:`z' = U z`.

    >>> [round(value, 6) for value in displayed_point(State(0, (1.0, 0.0), rotation=Rotation(0, 1, 90.0)))]
    [0.0, 1.0]
    """
    found = rotation_matrix(len(state.z), state.rotation) @ torch.tensor(state.z, dtype=torch.float64)
    return tuple(found.tolist())


def model_point(state: State, values: tuple[float, ...]) -> tuple[float, ...]:
    r"""The point in the model's own space of one along the displayed axes, :math:`z = U^\top z'`.

    >>> [round(value, 6) for value in model_point(State(0, (1.0, 0.0), rotation=Rotation(0, 1, 90.0)), (0.0, 1.0))]
    [1.0, 0.0]
    """
    found = rotation_matrix(len(values), state.rotation).mT @ torch.tensor(values, dtype=torch.float64)
    return tuple(found.tolist())


def to_query(state: State) -> str:
    """A state as the query of a link.

    >>> to_query(State(0, (0.0, 1.25)))
    'member=0&z=0,1.25&rotation=0,1,0&map=latents,0,1,0'
    """
    first, second, degrees = state.rotation
    fields: dict[str, object] = {
        "member": state.member,
        "z": ",".join(f"{value:.6g}" for value in state.z),
        "rotation": f"{first},{second},{degrees:g}",
        "map": f"{state.space},{state.plane[0]},{state.plane[1]},{state.colour}",
    }
    if state.item is not None:
        fields["item"] = state.item
    if state.other is not None:
        fields |= {"other": state.other, "same": state.same}
    if state.follow:
        fields["follow"] = 1
    return urlencode(fields, safe=",")


def from_query(exhibit: Exhibit, query: Mapping[str, str], member: int = 0) -> State:
    """The state that a link holds, or an error that says which of its parameters cannot be.

    Args:
        exhibit: which models and items there are.
        query: parameters by name; what is absent is as in :func:`first_state`.
        member: the model where the link names none.

    >>> from unseam.explore import exhibit_decoder
    >>> exhibit = exhibit_decoder(lambda z: 2 * z, latent=2)
    >>> from_query(exhibit, {"z": "1,2"}).z
    (1.0, 2.0)
    >>> from_query(exhibit, {"z": "1"})
    Traceback (most recent call last):
    ValueError: z must hold 2 numbers, got '1'
    """
    # its name in old links; the token of a link is the guard's
    query = {"rotation" if name == "turn" else name: text for name, text in query.items() if name != "token"}
    known = {"member", "z", "rotation", "map", "item", "other", "same", "follow"}
    if sum(map(len, query.values())) > _LONGEST:
        raise ValueError(f"the link must be shorter than {_LONGEST} characters")
    if strange := sorted(set(query) - known):
        raise ValueError(f"a link has no parameter {strange[0][:40]!r}; it has {', '.join(sorted(known))}")
    chosen = _whole("member", query.get("member", str(member)), len(exhibit.subjects))
    state = first_state(exhibit, chosen)
    latent = exhibit.subjects[chosen].latent
    changes: dict[str, object] = {}
    if "z" in query:
        changes["z"] = _point(query["z"], latent)
    if "item" in query:
        if exhibit.world is None:
            raise ValueError("item must be absent: there is no world")
        changes["item"] = item = _whole("item", query["item"], len(exhibit.world))
        if "z" not in query and exhibit.encodes(chosen):
            changes["z"] = tuple(exhibit.subjects[chosen].encode(exhibit.item(item)[None])[0][0].tolist())
    if "rotation" in query:
        changes["rotation"] = _rotation(query["rotation"], latent)
    if "map" in query:
        changes |= _map(exhibit, query["map"], chosen)
    if "other" in query:
        changes["other"] = _whole("other", query["other"], len(exhibit.subjects))
        if changes["other"] == chosen:
            raise ValueError(f"other must be another model than member, got {query['other']} for both")
    changes["same"] = _word("same", query.get("same", "z"), ("z", "item"))
    changes["follow"] = _word("follow", query.get("follow", "0"), ("0", "1")) == "1"
    return dataclasses.replace(state, **changes)  # type: ignore[arg-type]


def snippet(exhibit: Exhibit, state: State) -> str:
    """Code that decodes the point of a state and measures the decoder there.

    >>> from unseam.explore import exhibit_decoder
    >>> exhibit = exhibit_decoder(lambda z: 2 * z, latent=2)
    >>> print(snippet(exhibit, first_state(exhibit)).splitlines()[3])
    # decoder is yours: (batch, 2) -> (batch, 2)
    """
    active = sorted(exhibit.codes(state.member).active) or [0]
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


def _plane(exhibit: Exhibit, member: int) -> tuple[int, int]:
    rest = [k for k in range(exhibit.subjects[member].latent) if k not in exhibit.codes(member).active]
    first, second, *_ = [*exhibit.codes(member).active, *rest, 0, 0]
    return first, second


def _colour(exhibit: Exhibit, member: int, latent: int) -> int:
    codes = exhibit.codes(member).mean
    if not exhibit.factor_names or not len(codes):
        return 0
    both = torch.cat([codes[:, [latent]], exhibit.factors.double()], 1)
    unit = torch.nn.functional.normalize(both - both.mean(0), dim=0)
    return int((unit[:, 0] @ unit[:, 1:]).abs().argmax())


def _whole(name: str, text: str, size: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 12 and int(text) < size):
        raise ValueError(f"{name} must be a whole number below {size}, got {text[:40]!r}")
    return int(text)


def _word(name: str, text: str, allowed: tuple[str, ...]) -> str:
    if text not in allowed:
        raise ValueError(f"{name} must be {' or '.join(allowed)}, got {text[:40]!r}")
    return text


def _number(name: str, text: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, got {text[:40]!r}") from None
    if not low <= value <= high:
        raise ValueError(f"{name} must lie in [{low:g}, {high:g}], got {text[:40]!r}")
    return value


def _point(text: str, latent: int) -> tuple[float, ...]:
    parts = text.split(",")
    if len(parts) != latent:
        raise ValueError(f"z must hold {latent} numbers, got {text[:40]!r}")
    return tuple(_number("z", part, -_FAR, _FAR) for part in parts)


def _rotation(text: str, latent: int) -> Rotation:
    parts = text.split(",")
    if len(parts) != 3:
        raise ValueError(f"rotation must be two latents and an angle, got {text[:40]!r}")
    first, second = (_whole("rotation", part, latent) for part in parts[:2])
    found = Rotation(first, second, _number("rotation", parts[2], 0.0, WIDEST))
    rotation_matrix(latent, found)
    return found


def _map(exhibit: Exhibit, text: str, member: int) -> dict[str, object]:
    parts = text.split(",")
    if len(parts) != 4:
        raise ValueError(f"map must be what it shows, two axes and a colour, got {text[:40]!r}")
    factors, latent = len(exhibit.factor_names), exhibit.subjects[member].latent
    plain = factors < 2 or not exhibit.encodes(member)
    space = _word("map", parts[0], ("latents",) if plain else ("latents", "factors"))
    size = latent if space == "latents" else factors
    plane = (_whole("map", parts[1], size), _whole("map", parts[2], size))
    return {"space": space, "plane": plane, "colour": _whole("map", parts[3], factors + latent)}
