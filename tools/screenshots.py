"""Retake the pictures of the documentation: the demo's report and its explorer, in Chromium.

    python tools/screenshots.py [RUN]

RUN is the folder that `unseam demo` made, by default runs/demo.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
EXPLORER = {"width": 1280, "height": 900}
HALF = {"width": 1000, "height": 1090}  # of the report: its beginning, and what each latent does
GAP, MARGIN, SCALE = 16, 40, 0.82
ITEM = {"scale": 5, "x": 3, "y": 9}


def main() -> None:
    """Take both."""
    run = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
    if not (run / "report.html").is_file():
        sys.exit(f"{run} holds no report.html; run make demo first")
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("no command chromium; make chromium installs it")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        keep(report(browser, run), IMAGES / "report.png")
        with exploring(run) as address:
            keep(explorer(browser, address), IMAGES / "explorer.png")
        browser.close()


def report(browser: Any, run: Path) -> Image.Image:
    """The beginning of the report, and beside it the traversals of its first model."""
    page = browser.new_page(viewport=HALF, device_scale_factor=SCALE)
    page.goto((run / "report.html").resolve().as_uri())
    below = page.locator("#what-does-each-latent-do").bounding_box()["y"] - MARGIN
    beginning, latents = (taken(page, full_page=True, clip={"x": 0, "y": y, **HALF}) for y in (0, below))
    whole = Image.new("RGB", (2 * beginning.width + GAP, beginning.height), (208, 215, 222))
    whole.paste(beginning, (0, 0))
    whole.paste(latents, (beginning.width + GAP, 0))
    return whole


def explorer(browser: Any, address: str) -> Image.Image:
    """The whole page, at an item of the world."""
    page = browser.new_page(viewport=EXPLORER)
    page.goto(address)
    page.wait_for_selector(".view .main img[src^='data:']")
    for factor, steps in ITEM.items():
        slider = page.get_by_label(f"Factor {factor}", exact=True)
        slider.focus()
        page.keyboard.press("Home")
        for _ in range(steps):
            page.keyboard.press("ArrowRight")
    page.wait_for_selector(".rotation .drawing svg")
    page.evaluate("document.activeElement.blur()")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(3000)  # geometry follows when the hand rests
    return taken(page, full_page=True)


def taken(page: Any, **options: Any) -> Image.Image:
    """What a page shows."""
    return Image.open(io.BytesIO(page.screenshot(**options))).convert("RGB")


def keep(picture: Image.Image, path: Path) -> None:
    """Write a picture, as small as it can be without loss."""
    picture.save(path, optimize=True)
    print(f"{path}: {picture.width} x {picture.height}, {path.stat().st_size / 1000:.0f} kB")


@contextmanager
def exploring(run: Path) -> Iterator[str]:
    """The address of an explorer, which is stopped afterwards."""
    command = [sys.executable, "-m", "unseam", "explore", str(run), "--no-open", "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        text = ""
        while "}" not in text and (line := process.stdout.readline()):
            text += line
        yield json.loads(text)["address"]
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
