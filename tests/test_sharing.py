"""Models that are shared: folders in Hugging Face layout, exported graphs, and VAEs trained elsewhere as runs."""

import dataclasses
import json
import sys
from types import SimpleNamespace

import pytest
import torch

import unseam
from unseam.models import build, initialise

TRIAL = unseam.Trial(world="linear", likelihood="gaussian", latent=2, steps=3, batch_size=4)


@pytest.fixture(scope="module")
def model():
    return unseam.train(TRIAL, world=unseam.data.load("linear", size=10), device="cpu")[0]


@pytest.fixture
def folder(tmp_path, model):
    unseam.save_pretrained(model, tmp_path / "model", trial=TRIAL)
    return tmp_path / "model"


def test_a_folder_gives_the_same_model_back(folder, model):
    again = unseam.from_pretrained(folder)
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert not again.training
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]


def test_the_card_says_what_was_trained(folder):
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: unseam\n")
    assert "| trained on | linear |" in card and "3, 4, 0" in card


def test_another_format_is_refused(folder):
    (folder / "config.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(ValueError, match="must have the format 'unseam-vae-1'.* got 'other'"):
        unseam.from_pretrained(folder)


def test_sizes_of_the_config_are_compared_before_memory_is_taken(folder):
    config = json.loads((folder / "config.json").read_text())
    config["trial"]["encoder_widths"] = [2**20, 2**20]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"must hold '.*' of shape .*, got .*"):
        unseam.from_pretrained(folder)


def test_a_config_imports_nothing(folder):
    config = json.loads((folder / "config.json").read_text())
    config["trial"]["likelihood"] = "antigravity:fly"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="is code that is not imported yet"):
        unseam.from_pretrained(folder)
    assert "antigravity" not in sys.modules


def test_pushing_uploads_the_folder(folder, monkeypatch):
    calls = []
    hub = SimpleNamespace(
        create_repo=lambda name, **options: calls.append((name, options)),
        upload_folder=lambda **given: calls.append(given) or "address",
        snapshot_download=lambda name, **options: str(folder),
    )
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert unseam.push_to_hub(folder, "owner/name", private=True) == "address"
    assert calls == [
        ("owner/name", {"exist_ok": True, "private": True}),
        {"repo_id": "owner/name", "folder_path": str(folder)},
    ]
    assert unseam.from_pretrained("owner/name").posterior.latent == 2
    with pytest.raises(ValueError, match=r"folder must be one that unseam.save_pretrained wrote"):
        unseam.push_to_hub(folder.parent, "owner/name")


@pytest.mark.parametrize("part", ["decoder", "encoder"])
def test_an_exported_graph_gives_the_same_numbers_at_any_batch(model, part, tmp_path):
    unseam.export(model, tmp_path / "part.pt2", part=part)
    graph = torch.export.load(tmp_path / "part.pt2").module()
    draw = torch.Generator().manual_seed(0)
    given = torch.randn(7, 2 if part == "decoder" else 3, generator=draw)
    with torch.no_grad():
        expected = (model.generate(given),) if part == "decoder" else tuple(model.encode(given))
        found = graph(given)
    for one, other in zip(expected, (found,) if part == "decoder" else found, strict=True):
        torch.testing.assert_close(one, other)


def test_an_onnx_graph_gives_the_same_numbers(model, tmp_path, capsys):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    unseam.export(model, tmp_path / "decoder.onnx")
    assert capsys.readouterr().out == ""
    session = runtime.InferenceSession(tmp_path / "decoder.onnx")
    z = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    (found,) = session.run(None, {session.get_inputs()[0].name: z.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), model.generate(z).detach())


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("a.pkl", {}, "path must end in .pt2 .*got 'a.pkl'"),
        ("a.pt2", {"part": "prior"}, "part must be decoder or encoder, got 'prior'"),
        ("a.pt2", {"example": torch.zeros(1, 2)}, "example must hold two items or more, got 1"),
    ],
)
def test_export_refuses(model, tmp_path, path, options, message):
    with pytest.raises(ValueError, match=message):
        unseam.export(model, tmp_path / path, **options)
    with pytest.raises(ValueError, match="example must be given for a module that is no VAE"):
        unseam.export(torch.nn.Linear(2, 3), tmp_path / "b.pt2")


def test_a_vae_of_ones_own_loop_becomes_a_run(tmp_path):
    world = unseam.data.load("linear", size=50)
    model = build((3,), latent=2, likelihood="gaussian", encoder_widths=(8,), decoder_widths=(8,))
    initialise(model, generator=torch.Generator().manual_seed(0))
    trial = dataclasses.replace(TRIAL, encoder_widths=(8,), decoder_widths=(8,))
    unseam.save(model, tmp_path / "run", trial=trial, world=world)
    run = unseam.Run.open(tmp_path / "run", world=world)
    assert run.remarks() == []
    x = world.images(torch.arange(5))
    torch.testing.assert_close(run.ensemble.encode(x).mean[0], model.encode(x).mean.detach())
    assert run.inspect(points=20)[0].dto is not None


def test_a_vae_that_is_not_what_its_trial_says_is_refused(tmp_path, model):
    with pytest.raises(ValueError, match="trial must say what the parts of a VAE are"):
        unseam.save(model, tmp_path)
    other = dataclasses.replace(TRIAL, decoder_widths=(5,))
    with pytest.raises(
        ValueError, match="trial must describe the VAE: decoder.* by the trial, .* in the VAE"
    ):
        unseam.save(model, tmp_path, trial=other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": []}, "shape must be a list of sizes"),
        ({"shape": None}, "shape must be a list of sizes"),
        ({"shape": [1.5]}, "shape must be a list of sizes"),
        ({"trial": None}, "trials must be a list of trials"),
        ({"trial": {"world_options": 7}}, "wrong type"),
        ({"trial": {"encoder_activation": {}}}, "wrong type"),
        ({"trial": {"latent": 10**400}}, "latent must be below"),
    ],
)
def test_a_hostile_config_is_refused_in_one_line(change, message, folder):
    config = json.loads((folder / "config.json").read_text())
    if isinstance(change.get("trial"), dict):
        change = {"trial": config["trial"] | change["trial"]}
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ValueError, match=message) as caught:
        unseam.from_pretrained(folder)
    assert "\n" not in str(caught.value)


def test_flipped_bits_of_a_shared_model_are_noticed(folder):
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-3] ^= 64
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="model.safetensors is damaged"):
        unseam.from_pretrained(folder)
