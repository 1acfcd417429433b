"""The exported page, from disk and without a network: its numbers are torch's, and it answers at once."""

import re
import statistics
from pathlib import Path

import pytest
import torch

import unseam
from unseam.explore import Rotation, exhibit_run, local_view
from unseam.geometry import jacobian
from unseam.models import Bernoulli, ContinuousBernoulli, initialise
from unseam.models.convolutional import faces_decoder, shapes_decoder, study_decoder
from unseam.models.networks import ACTIVATIONS, MLP
from unseam.subject import Subject

pytestmark = pytest.mark.browser

SLIDERS = ".sliders .stack > .control input[type=range]"
AT = """([z, tangents]) => {
  const text = JSON.parse(document.getElementById("contents").textContent), model = text.members[0];
  const weights = unpack(document.getElementById("weights-0").textContent, model.half);
  const all = tangents.map((_, k) => k), none = [0, 1, 0];
  return [Array.from(picture(model, weights, z)), geometry(model, weights, z, all, none).columns.map((c) => [...c])];
}"""


@pytest.fixture
def opened(chromium, tmp_path):
    """Opens an export of something offline; it may ask for nothing but itself and say no error."""
    contexts, problems, asked = [], [], []

    def show(decoder, *, width=1280, scheme="light", **options):
        path = unseam.explore.export(decoder, tmp_path / "page.html", **options)
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, offline=True, color_scheme=scheme
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector(".geometry .numbers dd")
        return page

    yield show
    for context in contexts:
        context.close()
    assert problems == []
    assert [url for url in asked if not url.startswith(("file://", "blob:", "data:"))] == []


def networks():
    made = [study_decoder(4, (1, 64, 64)), shapes_decoder(4, (3, 64, 64)), faces_decoder(4, (1, 64, 64))]
    return [*made, *(MLP(4, (16,), (3, 8, 8), activation=name) for name in ACTIVATIONS)]


@pytest.mark.parametrize("place", range(3 + len(ACTIVATIONS)))
def test_pictures_and_derivatives_are_torch_s(opened, place):
    decoder = networks()[place]
    initialise(decoder, generator=torch.Generator().manual_seed(0))
    for value in decoder.parameters():  # storing them in half precision then loses nothing, and flips no ReLU
        value.data = value.data.half().float()
    likelihood = ContinuousBernoulli() if place % 2 else Bernoulli()
    subject = Subject("mine", decoder.eval(), 4, likelihood)
    page = opened(subject)
    z = torch.tensor([0.5, -1.0, 1.5, 0.25])
    picture, columns = page.evaluate(AT, [z.tolist(), [0] * 4])
    expected = jacobian(subject.mean_output, z[None])[0].detach()
    assert (torch.tensor(picture) - subject.picture(z)[0].flatten()).abs().max() <= 1e-3
    assert (torch.tensor(columns).mT - expected).abs().max() <= 5e-3 * expected.abs().max()


@pytest.mark.parametrize("member", [0, 2, 3])
def test_geometry_is_the_explorer_s(opened, run, member):
    exhibit, z = exhibit_run(run, points=300), [0.5, -0.5, 1.0, 0.25, -1.0]
    page = opened(run, members=[member])
    page.evaluate("z => { location.hash = `#member=0&z=${z}`; }", z)
    found = local_view(exhibit, member, torch.tensor(z), Rotation(0, 1, 0.0))
    wanted = "—" if found.dto is None else f"{found.dto:.2f}"
    page.wait_for_function(
        "text => document.querySelector('.numbers dd').firstChild.textContent === text", arg=wanted
    )
    if found.dto is None:
        collapsed = "fewer than two active latents", 3
        why, count = collapsed if found.cosine is None else ("two singular values nearly coincide", 1)
        assert page.locator(".numbers").inner_text().count(f"undefined: {why}") == count


def test_where_singular_values_coincide_dto_is_undefined(opened):
    decoder = torch.nn.Linear(2, 12)
    decoder.weight.data = torch.eye(12)[:, :2]
    numbers = opened(decoder, latent=2, name="equal").locator(".numbers")
    assert numbers.inner_text().count("undefined: two singular values nearly coincide") == 1
    assert numbers.locator("dd").nth(1).inner_text().startswith("0.00")


def test_it_opens_at_an_item_and_prints_light_and_whole(opened, run):
    page = opened(run, members=[0], scheme="dark")
    assert page.locator(".view .item canvas").is_visible()
    assert any(
        float(value) for value in page.locator(SLIDERS).evaluate_all("all => all.map(one => one.value)")
    )
    dark = "document.body.classList.contains('body--dark')"
    assert page.evaluate(dark)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert not page.evaluate(dark)
    page.emulate_media(media="print")
    style = "(all, key) => [...new Set(all.map(one => getComputedStyle(one)[key]))]"
    assert page.eval_on_selector_all(".card", style, "breakInside") == ["avoid"]
    assert page.eval_on_selector_all(".legend i", style, "printColorAdjust") == ["exact"]
    assert page.get_by_text(
        "distance to orthogonality"
    ).is_visible()  # terms are explained where they are printed
    assert page.eval_on_selector_all(".actions, .zoom", style, "display") == ["none"]
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(dark)


def test_a_key_shows_its_picture_within_50_ms(opened):
    decoder = study_decoder(10, (3, 64, 64))
    initialise(decoder, generator=torch.Generator().manual_seed(0))
    page = opened(Subject("mine", decoder.eval(), 10, Bernoulli()))
    times = page.evaluate(
        """async (selector) => {
          const slider = document.querySelector(selector), times = [];
          for (let k = 0; k < 15; k++) {
            slider.value = Number(slider.value) + 0.05;
            const start = performance.now();
            slider.dispatchEvent(new Event("input"));
            times.push(performance.now() - start);
            await new Promise((done) => setTimeout(done, 60));
          }
          return times;
        }""",
        SLIDERS,
    )
    print(f"from key to picture {statistics.median(times):.0f} ms")
    assert statistics.median(times) < 50


@pytest.mark.parametrize("width, scheme", [(390, "light"), (1280, "dark")])
def test_all_parts_work_together(opened, run, width, scheme):
    page = opened(run, width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".plane-drawing circle[fill]").count() > 200
    page.get_by_text("What these numbers mean").click()
    assert "distance to orthogonality" in page.locator(".terms").inner_text()
    page.get_by_role("button", name="To the origin").click()
    name = page.locator(SLIDERS).first.get_attribute("aria-label")
    page.get_by_label(name, exact=True).focus()
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("() => location.hash.includes('0.3')")
    shown = "document.querySelector('.view .main canvas').toDataURL()"
    before = page.evaluate(shown)
    page.get_by_label("Angle of the rotation", exact=True).focus()
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("() => /rotation=\\d,\\d,9/.test(location.hash)")
    assert page.evaluate(shown) == before
    page.reload()
    page.wait_for_selector(".geometry .numbers dd")
    assert page.get_by_label("Angle of the rotation", exact=True).input_value() == "9"
    page.locator("#model select").select_option("3")
    page.wait_for_function("() => location.hash.startsWith('#member=3')")
    page.get_by_role("button", name="Random item").click()
    page.wait_for_selector(".view .item:not(.hidden)")
    assert "twin of dSprites" in page.locator("#about").inner_text()
    assert re.match(r"Estimated from \d+ items", page.locator("#sample").inner_text())


def test_the_committed_page_works_and_can_be_sent(chromium):
    path = Path(__file__).parents[2] / "docs" / "pages" / "showcase.html"
    assert path.stat().st_size <= 6_000_000
    context = chromium.new_context(offline=True)
    problems, page = [], context.new_page()
    page.on("console", lambda message: message.type == "error" and problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector(".geometry .numbers dd")
    before = page.locator("canvas").first.evaluate("canvas => canvas.toDataURL()")
    page.locator(SLIDERS).first.focus()
    page.keyboard.press("End")
    page.wait_for_timeout(300)
    assert page.locator("canvas").first.evaluate("canvas => canvas.toDataURL()") != before
    assert not problems
    context.close()
