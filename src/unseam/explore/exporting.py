"""One file to send: the explorer as a page that needs neither a server nor a network."""

from __future__ import annotations

import base64
import copy
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unseam.charts import COLOURS, Pixels, data_url, pixels, style, tint
from unseam.explore.exhibit import Exhibit, open_exhibit
from unseam.explore.layers import Layers, layers_of
from unseam.explore.local import explain_terms
from unseam.explore.maps import RAMP, ellipse_items, item_notes, latent_name
from unseam.explore.measures import measure, mig_curve, pullbacks
from unseam.explore.state import first_state
from unseam.files import write_text
from unseam.geometry import pullback, restrict
from unseam.subject import Subject
from unseam.training import provenance

__all__ = ["export"]

# Bytes that a page may have, so that it can be sent.
_LARGEST = 15_000_000
# Error of a picture, relative to the range of the data, up to which weights are stored in half precision: a quarter of
# what the 256 levels of a screen can show; and that of the pullbacks, relative to their size.
_TOLERANCE, _PULLBACK_TOLERANCE = 1e-3, 1e-2
# Latents, the most informative first, for whose pairs MIG is measured over the angle of the rotation.
_PAIRED = 6
_ACROSS = 20


def export(
    decoder: Any,
    path: str | Path,
    *,
    members: Sequence[int] | None = None,
    first: int | None = None,
    title: str | None = None,
    note: str | None = None,
    points: int = 300,
    **options: Any,
) -> Path:
    """Write the explorer of a run's members, or of a decoder, as one HTML file that works from disk.

    The page holds the decoders' layers and runs them in the browser, with exact derivatives; pictures, geometry, map
    and rotation are those of :func:`unseam.explore.serve`. It loads nothing. Weights are stored in half precision
    where that changes no picture by more than a thousandth of the data's range and the pullbacks by at most 1 %.

    Args:
        decoder: as in :func:`unseam.explore.serve`; it must consist of affine layers, convolutions, batch normalisation
            and elementwise nonlinearities.
        path: of the page.
        members: of a run: which members; by default those that did not diverge.
        first: of a run: the member shown first, by default the first of ``members``.
        title: of the page, by default the name of the data, or of the decoder.
        note: a sentence below the title, such as how the members were chosen.
        points: number of items on the map.
        options: ``encoder``, ``world``, ``latent``, ``likelihood``, ``beta``, ``name``, ``root`` and ``data`` of
            :func:`unseam.explore.serve`.

    Returns:
        The path.

    >>> import tempfile
    >>> linear = nn.Linear(2, 12)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(linear, Path(folder) / "page.html", latent=2, name="mine").name
    'page.html'
    """
    path = Path(path)
    if points < 2:
        raise ValueError(f"points must be at least 2, got {points}")
    exhibit = open_exhibit(decoder, points=points, **options)
    run = exhibit.run
    chosen = list(members) if members is not None else list(range(len(exhibit.subjects)))
    if run is not None:
        chosen = run.measured(members)
    elif any(not 0 <= member < len(exhibit.subjects) for member in chosen) or not chosen:
        raise ValueError(f"members must lie in [0, {len(exhibit.subjects)}), got {list(chosen)}")
    if first is not None and first not in chosen:
        state = "" if run is None or not 0 <= first < len(run) else str(run.standing[first])
        raise ValueError(
            f"first must be one of the members {chosen}, got {first}{state and f' ({state})'}; name all that the page "
            f"is to hold (members=, --members)"
        )
    weights = sum(layers_of(exhibit.subjects[member]).weights.size for member in chosen)
    # two bytes each at least, and four characters of base64 for three bytes: known before anything is measured
    _check_size(weights * 8 // 3, len(chosen), points)
    text = _page(exhibit, chosen, chosen.index(first) if first is not None else 0, title, note)
    _check_size(len(text.encode()), len(chosen), points)
    write_text(path, text)
    return path


def _check_size(size: int, members: int, points: int) -> None:
    if size > _LARGEST:
        raise ValueError(
            f"a page must have at most {_LARGEST / 1e6:g} MB, got {size / 1e6:.1f} MB with {members} members and "
            f"{points} items; name fewer of them (members=, --members; points=, --points)"
        )


def _page(exhibit: Exhibit, members: Sequence[int], first: int, title: str | None, note: str | None) -> str:
    written = [_member(exhibit, member) for member in members]
    world = exhibit.world
    shown = title or (exhibit.title if world is None else world.name)
    contents = _contents(exhibit) | {"members": [model for model, _ in written], "first": first}
    contents["remarks"] += [note] if note else []
    weights = "\n".join(
        f'<script type="text/plain" id="weights-{k}">{text}</script>' for k, (_, text) in enumerate(written)
    )
    return render_page(shown, contents, weights)


def render_page(title: str, contents: dict[str, Any], weights: str) -> str:
    """The page around what it holds."""
    folder = files("unseam.explore")
    sources = {
        name: folder.joinpath(name).read_text("utf8") for name in ("decoder.js", "plane.js", "exported.js")
    }
    parts = {
        "title": html.escape(title),
        "style": style(".body--dark") + folder.joinpath("style.css").read_text("utf8"),
        # no text can end the element that holds it
        "contents": json.dumps(contents, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
        "terms": explain_terms(),
        "weights": weights,
        "runtime": sources["decoder.js"],
        "script": sources["plane.js"] + sources["exported.js"],
    }
    page = folder.joinpath("exported.html").read_text("utf8")
    pieces = page.split("{{ ")
    return pieces[0] + "".join(
        parts[name] + rest for name, rest in (piece.split(" }}", 1) for piece in pieces[1:])
    )


def _contents(exhibit: Exhibit) -> dict[str, Any]:
    """What all models of a page share."""
    look, world = exhibit.look, exhibit.world
    colours = [[*bytes.fromhex(colour[1:])] for colour in (COLOURS[0], "#f5f5f5", COLOURS[1])]
    shape = look.shape if look.is_picture else (1, 1, int(np.prod(look.shape)))
    subtitle = "" if world is None else repr(world).strip("<>").removeprefix("world ")
    found: dict[str, Any] = {
        "subtitle": subtitle,
        "remarks": list(exhibit.remarks),
        "look": {
            "picture": look.is_picture,
            "count": int(np.prod(look.shape)),
            "channels": shape[0] if len(shape) == 3 else 1,
            "side": [shape[-1], shape[-2]],
            "low": look.low,
            "high": look.high,
        },
        "signs": dict(zip(("negative", "zero", "positive"), colours, strict=True)),
        "lead": exhibit.change_lead,
        "map_lead": "The plane of two latents. Click, drag the point, or use the arrow keys; the wheel zooms.",
        "ramps": {
            kind: [tint(k / RAMP, cyclic=kind == "cyclic") for k in range(RAMP + 1)]
            for kind in ("plain", "cyclic")
        },
        "factors": [],
        "values": [],
        "notes": [],
        "index": [],
        "chosen": [],
        "sheet": None,
        "across": _ACROSS,
    }
    if world is None:
        return found
    found["map_lead"] = (
        "Each dot is the code of an item, each ellipse a posterior. Click, drag the point, or use the arrow keys; a "
        "double click takes a dot's item, the wheel zooms."
    )
    factors = zip(world.factor_names, world.factor_sizes, exhibit.cyclic, strict=True)
    return found | {
        "factors": [
            {"name": name, "cyclic": cyclic and size > 0, "size": size} for name, size, cyclic in factors
        ],
        "values": exhibit.factors.tolist(),
        "notes": item_notes(exhibit),
        "index": exhibit.index.tolist(),
        "chosen": ellipse_items(len(exhibit.index)).tolist(),
        "sheet": data_url(_sheet([pixels(item, look) for item in exhibit.items]), level=9),
    }


def _sheet(pictures: list[Pixels]) -> Pixels:
    """Pictures in rows, as one."""
    height, width, depth = pictures[0].shape
    rows = -(-len(pictures) // _ACROSS)
    whole = np.zeros((rows * height, _ACROSS * width, depth), np.uint8)
    for k, picture in enumerate(pictures):
        row, column = divmod(k, _ACROSS)
        whole[row * height : (row + 1) * height, column * width : (column + 1) * width] = picture
    grey = depth == 3 and bool((whole == whole[..., :1]).all())
    return whole[..., :1] if grey else whole


def _member(exhibit: Exhibit, member: int) -> tuple[dict[str, Any], str]:
    """What a page holds of one model, and its weights in base64."""
    subject, codes = exhibit.subjects[member], exhibit.codes(member)
    layers, active = layers_of(subject), list(codes.active)
    half = _can_halve(exhibit, member)
    scale = layers.weights.astype("<f2" if half else "<f4")
    chosen = ellipse_items(len(codes.mean))
    pairs = [(a, b) for k, a in enumerate(active[:_PAIRED]) for b in active[k + 1 : _PAIRED]]
    curves = {f"{a},{b}": mig_curve(exhibit, member, a, b) for a, b in pairs} if len(codes.mean) else {}
    about, trial = _about(exhibit, member, layers, half)
    return {
        "name": subject.name,
        "names": [latent_name(latent) for latent in range(subject.latent)],
        "latent": subject.latent,
        "active": active,
        "limit": codes.limit,
        "colour": first_state(exhibit, member).colour,
        "half": half,
        "layers": layers.layers,
        "likelihood": layers.likelihood,
        "random_dto": exhibit.random_dto(len(active)) if len(active) > 1 else None,
        "codes": _packed(codes.mean),
        "covariances": _packed(codes.covariance[chosen]),
        "pullbacks": _packed(restrict(pullbacks(exhibit, member), active)) if active else "",
        "error": measure(exhibit, member).reconstruction,
        "mig": {key: curve for key, curve in curves.items() if curve is not None},
        "about": about,
        "trial": trial,
    }, base64.b64encode(scale.tobytes()).decode()


def _can_halve(exhibit: Exhibit, member: int) -> bool:
    """Whether weights in half precision give the same pictures and the same geometry."""
    subject = exhibit.subjects[member]
    assert isinstance(subject.decoder, nn.Module)
    rounded = copy.deepcopy(subject.decoder)
    for value in (*rounded.parameters(), *rounded.buffers()):
        if value.is_floating_point():
            value.data = value.data.half().to(value.dtype)
    codes = exhibit.codes(member).mean[:64]
    z = codes if len(codes) else subject.prior(64, torch.Generator().manual_seed(0))
    narrow = Subject(subject.name, rounded, subject.latent, subject.likelihood)
    apart = float((narrow.picture(z) - subject.picture(z)).abs().max())
    if apart > _TOLERANCE * (exhibit.look.high - exhibit.look.low):
        return False
    wide, found = (
        pullback(one.decoder, one.points(z), likelihood=one.likelihood) for one in (subject, narrow)
    )
    return bool((found - wide).norm() <= _PULLBACK_TOLERANCE * wide.norm())


def _about(exhibit: Exhibit, member: int, layers: Layers, half: bool) -> tuple[dict[str, str], str | None]:
    """Where a model comes from, in words, and its trial as JSON."""
    run, world = exhibit.run, exhibit.world
    made = provenance()["versions"]
    found = {"model": exhibit.subjects[member].name}
    trial = None
    if world is not None:
        twin = (
            f": rendered here as a twin of {world.twin_of}, whose files it does not use"
            if world.twin_of
            else ""
        )
        found["data"] = f"{world.name}{twin}; {_thousands(len(world))} items, {len(exhibit.index)} on the map"
    if run is not None:
        about, own = run.about, run.trials[member]
        trial = json.dumps(own.to_dict(), indent=1, ensure_ascii=False)
        found["training"] = (
            f"{own.objective_choice.title}, β {own.beta:g}, seed {own.seed}, {run.standing[member].steps} steps of "
            f"{own.batch_size} items"
        )
        hardware = about.get("hardware", {})
        if machine := hardware.get("accelerator") or hardware.get("processor"):
            found["trained on"] = str(machine)
        made = about.get("versions", made)
        if revision := about.get("revision"):
            commit, _, changed = str(revision).partition("-")
            found["revision"] = commit[:12] + (", with changes" if changed else "")
        if created := about.get("created"):
            found["date"] = str(created)[:10]
    found["versions"] = ", ".join(f"{name} {made[name]}" for name in ("unseam", "torch") if made.get(name))
    found["weights"] = f"{_thousands(len(layers.weights))} in {'half' if half else 'single'} precision"
    return found, trial


def _thousands(value: int) -> str:
    return f"{value:,}".replace(",", "\u202f")


def _packed(values: Tensor) -> str:
    return base64.b64encode(values.to("cpu", torch.float32).numpy().astype("<f4").tobytes()).decode()
