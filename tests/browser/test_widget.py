"""The notebook widget's browser side, with Python's side of the model replayed."""

import json
from pathlib import Path

import pytest

import unseam
from unseam.explore import widget

pytestmark = pytest.mark.browser

PAGE = """<!doctype html><meta charset="utf-8"><style>{css}</style><div id="cell"></div><script type="module">
{script}
const state = {state}, listeners = {{}};
window.sent = [];
const model = {{
  get: (name) => state[name],
  set: (name, value) => {{ state[name] = value; (listeners["change:" + name] || []).forEach((f) => f()); }},
  on: (name, f) => {{ (listeners[name] ||= []).push(f); }},
  save_changes: () => window.sent.push(state.z),
}};
window.model = model;
widget.render({{ model, el: document.getElementById("cell") }});
</script>"""


def decoder(z):
    return (z[:, :4] * z.new_tensor([3.0, 1.0, 0.0, 2.0])).reshape(-1, 1, 2, 2)


@pytest.fixture
def cell(visit, tmp_path):
    made = widget(decoder, latent=4)
    folder = Path(unseam.explore.__file__).parent
    names = ("title", "names", "limit", "z", "shown", "picture", "columns", "geometry")
    script = (folder / "widget.js").read_text().replace("export default", "const widget =")
    css = (folder / "widget.css").read_text()
    page = tmp_path / "cell.html"
    page.write_text(
        PAGE.format(css=css, script=script, state=json.dumps({name: getattr(made, name) for name in names}))
    )
    return visit(page.as_uri(), ready=False)


def test_a_slider_sends_z_of_its_latent(cell):
    sliders = cell.locator("input[type=range]")
    assert sliders.count() == 3
    sliders.nth(1).fill("1.5")
    assert cell.evaluate("window.sent") == [[0, 0, 0, 1.5]]
    assert cell.locator("output").nth(1).text_content() == "1.50"
    cell.get_by_text("to the origin").click()
    assert cell.evaluate("window.sent")[-1] == [0, 0, 0, 0]


def test_picture_and_charts_follow_python(cell):
    assert cell.locator("img.picture").get_attribute("src").startswith("data:image/png")
    assert cell.locator("svg").count() == 2
    cell.evaluate("window.model.set('geometry', '<p>new</p>')")
    assert cell.locator("svg").count() == 0
