"""The page without a browser: it is built, moved, and forgotten when its tab is closed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import unseam

# In a process of its own: the framework has one application for each process.
SCRIPT = """
import asyncio, gc, json, weakref
from concurrent.futures import ThreadPoolExecutor
from nicegui import Client
from nicegui.testing import user_simulation
from unseam.explore import _page, exhibit_decoder

kept = []

class Watched(_page.Page):
    def __init__(self, *given):
        super().__init__(*given)
        kept.append(weakref.ref(self))

async def visit():
    exhibit = exhibit_decoder(lambda z: z.repeat(1, 8).view(-1, 1, 4, 4), latent=2)
    pool = ThreadPoolExecutor(1)
    _page.Page = Watched
    async with user_simulation(lambda: _page.build_page(exhibit, pool, pool, 0)) as user:
        client = await user.open("/")
        page = kept[0]()
        before = page.view.picture.source
        page.sliders._move(0, 1.0)
        await page.pictures.idle()
        await page.details.idle()
        found = {"moved": page.view.picture.source != before, "geometry": "DtO" in page.geometry.numbers.content}
        page.failed("geometry", ValueError("no derivative"))
        found["said"] = page.banner.content
        page.well("picture")
        found["still said"] = page.banner.visible
        page.well("geometry")
        found["taken back"] = not page.banner.visible
        client.delete()
        del page, client
        user.client = None
        await asyncio.sleep(0.1)
        gc.collect()
        found["forgotten"] = kept[0]() is None
    pool.shutdown()
    return found

print(json.dumps(asyncio.run(visit())))
"""


@pytest.fixture(scope="module")
def found():
    pytest.importorskip("nicegui", reason="the explorer's extra is not installed")
    source = str(Path(unseam.__file__).parents[1])
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def test_a_move_changes_picture_and_geometry(found):
    assert found["moved"]
    assert found["geometry"]


def test_an_error_is_said_until_the_same_part_is_well(found):
    assert found["said"] == "No geometry here: ValueError: no derivative"
    assert found["still said"]
    assert found["taken back"]


def test_a_closed_tab_is_forgotten(found):
    assert found["forgotten"]
