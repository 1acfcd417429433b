"""The page without a browser: it is built, moved, and forgotten when its tab is closed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import unseam
from unseam.explore.rotation import Rotation
from unseam.explore.state import State, displayed_point

# In processes of their own: the framework has one application for each process.
BEGIN = """
import asyncio, gc, json, threading, torch, weakref
from concurrent.futures import ThreadPoolExecutor
from nicegui.testing import user_simulation
from unseam.data import ArrayWorld, grid_factors
from unseam.explore import _controls, _page, exhibit_decoder

kept = []

class Watched(_page.Page):
    def __init__(self, *given):
        super().__init__(*given)
        kept.append(weakref.ref(self))

_page.Page = Watched

async def visit(exhibit, steps):
    pool = ThreadPoolExecutor(1)
    async with user_simulation(lambda: _page.build_page(exhibit, pool, pool, 0)) as user:
        found = await steps(user, await user.open("/"))
    pool.shutdown()
    print(json.dumps(found))
"""

OWN = """
async def steps(user, client):
    page = kept[0]()
    before = page.view.picture.source
    controls = [one for one in client.elements.values() if isinstance(one, _controls.Control)]
    found = {
        "spoken": {one.props["label"]: one.props["spoken"] for one in controls if one.props.get("spoken")},
        "cards": [
            [one.props["aria-label"], one.default_slot.children[0].content]
            for one in client.elements.values() if one.tag == "section" and "card" in one.classes
        ],
    }
    page.sliders._move(0, 1.0)
    await page.pictures.idle()
    await page.details.idle()
    await asyncio.sleep(0.3)
    found |= {"moved": page.view.picture.source != before, "geometry": "DtO" in page.geometry.numbers.content}
    page.report_fault("geometry", ValueError("no derivative"))
    page.report_fault("rotation", ValueError("no curve"))
    found["said"] = page.banner.content
    page.clear_fault("picture")
    page.clear_fault("rotation")
    found["still said"] = page.banner.content if page.banner.visible else ""
    page.clear_fault("geometry")
    found["taken back"] = not page.banner.visible
    page.report_fault("comparison", ValueError("no pair"))
    page.view._tabulate([])
    found["compared"] = not page.banner.visible
    client.delete()
    del page, client, controls
    user.client = None
    await asyncio.sleep(0.1)
    gc.collect()
    found["forgotten"] = kept[0]() is None
    return found

asyncio.run(visit(exhibit_decoder(lambda z: z.repeat(1, 8).view(-1, 1, 4, 4), latent=2), steps))
"""

# A factor with one value and another with an evil name; two walks that overtake each other; a hasty visitor.
WORLD = """
factors = grid_factors(torch.arange(12), (1, 3, 4))
x = torch.rand(12, 2, generator=torch.Generator().manual_seed(0))
world = ArrayWorld(x, factors, name="toy", factor_names=("one", "<b>a</b>", "b"), factor_sizes=(1, 3, 4))
exhibit = exhibit_decoder(lambda z: z * torch.tensor([1.0, 3.0]), encoder=lambda x: (x, 0 * x + 0.1), world=world)

async def steps(user, client):
    page, found = kept[0](), {}
    page.view._take(7)
    found["factors"], found["item"] = exhibit.item_factors(7), page.state.item
    page.map._colour(1)
    found["legend"] = page.map.legend.content
    shown, controls = {}, page.sliders.controls
    _controls.Control.put = lambda control, value: shown.update({id(control): value})
    found["sliders"] = []
    first, second, _ = page.state.rotation
    for rotate in (lambda: page.rotation._angle(30.0), lambda: page.rotation._plane(0, second)):
        shown.clear()
        rotate()
        found["sliders"].append([page.state.z, page.state.rotation, [shown.get(id(controls[k])) for k in (0, 1)]])
    page.visit.rotate(first, second, 0.0)
    page.sliders._reset()
    page.sliders._follow(True)
    gate, start = threading.Event(), page.visit.start_walk
    page.visit.start_walk = lambda component: (gate.wait(10), start(component))[1]
    page.sliders._walk(0, 2.0)
    await asyncio.sleep(0.1)
    page.sliders._walk(1, 0.5)
    gate.set()
    await page.traces.idle()
    found["component"], found["z"] = page.visit.walk.component, page.state.z
    for given in ([float("nan"), 3.0], [1.0], "here", [True, None]):
        _controls._pair(given, page.map._go)
    found["after"] = page.state.z
    return found

asyncio.run(visit(exhibit, steps))
"""


def run(script):
    pytest.importorskip("nicegui", reason="the explorer's extra is not installed")
    source = str(Path(unseam.__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-c", BEGIN + script],
        env=os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def found():
    return run(OWN)


@pytest.fixture(scope="module")
def world():
    return run(WORLD)


def test_a_move_changes_picture_and_geometry(found):
    assert found["moved"]
    assert found["geometry"]


def test_controls_and_cards_have_names(found):
    assert {"z0": "Latent z0", "z1": "Latent z1"}.items() <= found["spoken"].items()
    assert found["cards"] and all(label == heading for label, heading in found["cards"])


def test_an_error_is_said_until_the_same_part_is_well(found):
    geometry = "No geometry here: ValueError: no derivative"
    assert found["said"] == f"{geometry} No rotation here: ValueError: no curve"
    assert found["still said"] == geometry
    assert found["taken back"]
    assert found["compared"]


def test_a_closed_tab_is_forgotten(found):
    assert found["forgotten"]


def test_a_factor_with_one_value_needs_no_slider(world):
    assert world["item"] == 7
    assert world["factors"] == [0.0, 1.0, 3.0]


def test_sliders_show_the_point_along_rotated_axes(world):
    """After the angle was set, and after another plane was chosen."""
    (z, one, angled), (_, other, swapped) = world["sliders"]
    assert one[:2] == other[1::-1] and one[2] == other[2] == 30
    assert angled != pytest.approx(swapped)
    for rotation, values in ((one, angled), (other, swapped)):
        assert values == pytest.approx(displayed_point(State(0, tuple(z), rotation=Rotation(*rotation))))


def test_names_of_factors_are_text(world):
    assert "&lt;b&gt;a&lt;/b&gt;: low" in world["legend"]


def test_of_two_walks_the_last_that_was_touched_is_followed(world):
    assert world["component"] == 1
    assert [abs(value) for value in world["z"]] == pytest.approx([0.5, 0.0], abs=1e-6)


def test_a_click_nowhere_leads_nowhere(world):
    assert world["after"] == world["z"]


# A client of the framework's own protocol that says what no page of it does, and a browser with a theme of its own.
WILD = """
async def steps(user, client):
    from nicegui import core
    from unseam.explore._server import forgive
    forgive(core.sio)
    core.sio.environ = {}
    wild = [None, 3, "x", [], {}, {"client_id": []}, {"client_id": client.id}, {"client_id": client.id, "id": "x"},
            {"client_id": client.id, "id": kept[0]().theme.id, "listener_id": "no", "args": ["{"]},
            {"client_id": client.id, "level": "error", "message": "shown"}]
    for event in ("event", "javascript_response", "ack", "handshake", "log"):
        await core.sio._trigger_event(event, "/", "stranger")
        for message in wild:
            await core.sio._trigger_event(event, "/", "stranger", message)
    page = kept[0]()
    page.theme.set_value({"no": "theme"})
    said = []
    for _ in range(3):
        page._next_theme()
        said.append([page.theme.value, page.theme_button.content])
    return said

asyncio.run(visit(exhibit_decoder(lambda z: z.repeat(1, 8).view(-1, 1, 4, 4), latent=2), steps))
"""


def test_wild_messages_and_themes_leave_no_traceback():
    assert run(WILD) == [[True, "Theme: dark"], [False, "Theme: light"], [None, "Theme: system"]]
