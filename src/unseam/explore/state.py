"""Where a visitor stands: one frozen value, written into links and read back with care."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

import torch

from unseam.explore.exhibit import Exhibit
from unseam.explore.turning import Turn, rotation

__all__ = ["WIDEST", "State", "first_state", "from_query", "shown", "to_query", "unshown"]

# A link longer than this is not one of ours.
_LONGEST = 20_000
# No model has been anywhere near.
_FAR = 1e6
_STRAIGHT = Turn(0, 1, 0.0)
WIDEST = 90.0
"""The widest turn in degrees: from there on the axes have only changed places."""


@dataclass(frozen=True)
class State:
    """What one tab shows.

    >>> State(0, (0.0, 1.0)).z
    (0.0, 1.0)
    """

    member: int
    """Which model."""
    z: tuple[float, ...]
    """The point, in the model's own latent space."""
    item: int | None = None
    """The item of the world that was encoded last."""
    turn: Turn = _STRAIGHT
    """How the latent space is turned."""
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
    """Where a visit begins: the origin, the map and the turn in the plane of the two liveliest latents.

    The map is coloured by the factor that the first of them correlates with most.

    >>> from unseam.charts import Look
    >>> from unseam.explore.subject import Subject
    >>> first_state(Exhibit([Subject("mine", lambda z: z * torch.tensor([1.0, 2.0]), 2)], Look((2,), -3, 3))).plane
    (1, 0)
    """
    subject = exhibit.subjects[member]
    first, second = _plane(exhibit, member)
    return State(
        member,
        (0.0,) * subject.latent,
        turn=Turn(first, second, 0.0),
        plane=(first, second),
        colour=_colour(exhibit, member, first),
    )


def shown(state: State) -> tuple[float, ...]:
    r"""The point along the axes that are shown, :math:`z' = U z`.

    >>> [round(value, 6) for value in shown(State(0, (1.0, 0.0), turn=Turn(0, 1, 90.0)))]
    [0.0, 1.0]
    """
    if state.turn.degrees == 0 or len(state.z) < 2:
        return state.z
    found = rotation(len(state.z), state.turn) @ torch.tensor(state.z, dtype=torch.float64)
    return tuple(float(value) for value in found)


def unshown(state: State, values: tuple[float, ...]) -> tuple[float, ...]:
    r"""The point in the model's own space of one along the axes that are shown, :math:`z = U^\top z'`.

    >>> state = State(0, (1.0, 0.0), turn=Turn(0, 1, 90.0))
    >>> [round(value, 6) for value in unshown(state, shown(state))]
    [1.0, 0.0]
    """
    if state.turn.degrees == 0 or len(state.z) < 2:
        return values
    found = rotation(len(values), state.turn).mT @ torch.tensor(values, dtype=torch.float64)
    return tuple(float(value) for value in found)


def to_query(state: State) -> str:
    """A state as the query of a link.

    >>> to_query(State(0, (0.0, 1.25)))
    'member=0&z=0,1.25&turn=0,1,0&map=latents,0,1,0'
    """
    first, second, degrees = state.turn
    fields: dict[str, object] = {
        "member": state.member,
        "z": ",".join(f"{value:.6g}" for value in state.z),
        "turn": f"{first},{second},{degrees:g}",
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

    >>> from unseam.charts import Look
    >>> from unseam.explore.subject import Subject
    >>> exhibit = Exhibit([Subject("mine", lambda z: 2 * z, 2)], Look((2,), -3.0, 3.0))
    >>> from_query(exhibit, {"z": "1,2"}).z
    (1.0, 2.0)
    >>> from_query(exhibit, {"z": "1"})
    Traceback (most recent call last):
    ValueError: z must hold 2 numbers, got '1'
    """
    known = {"member", "z", "turn", "map", "item", "other", "same", "follow"}
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
    if "turn" in query:
        changes["turn"] = _turn(query["turn"], latent)
    if "map" in query:
        changes |= _map(exhibit, query["map"], chosen)
    if "other" in query:
        changes["other"] = _whole("other", query["other"], len(exhibit.subjects))
        if changes["other"] == chosen:
            raise ValueError(f"other must be another model than member, got {query['other']} for both")
    changes["same"] = _word("same", query.get("same", "z"), ("z", "item"))
    changes["follow"] = _word("follow", query.get("follow", "0"), ("0", "1")) == "1"
    return dataclasses.replace(state, **changes)  # type: ignore[arg-type]


def _plane(exhibit: Exhibit, member: int) -> tuple[int, int]:
    rest = [k for k in range(exhibit.subjects[member].latent) if k not in exhibit.codes(member).alive]
    first, second, *_ = [*exhibit.codes(member).alive, *rest, 0, 0]
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


def _turn(text: str, latent: int) -> Turn:
    parts = text.split(",")
    if len(parts) != 3:
        raise ValueError(f"turn must be two latents and an angle, got {text[:40]!r}")
    turn = Turn(
        _whole("turn", parts[0], latent),
        _whole("turn", parts[1], latent),
        _number("turn", parts[2], 0.0, WIDEST),
    )
    if latent > 1:
        rotation(latent, turn)
    return turn


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
