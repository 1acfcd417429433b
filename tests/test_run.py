"""A run as an object: lazy, read once, encoded once, drawn from nowhere, shared by threads."""

import dataclasses
import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import unseam
from unseam.cli import main
from unseam.run import Cache, Run
from unseam.training import checkpoint, split_items, training_index

TRIAL = unseam.Trial(
    world="sprites",
    world_options={"resolution": 8, "shapes": ["ellipse"], "scales": 2, "orientations": 2, "positions": 6},
    latent=3,
    encoder_widths=(8,),
    decoder_widths=(8,),
    steps=5,
    batch_size=8,
    train_fraction=0.5,
)
TRIALS = [
    TRIAL,
    dataclasses.replace(TRIAL, seed=1),
    dataclasses.replace(TRIAL, posterior="full"),
    dataclasses.replace(TRIAL, objective="factor_vae", precision="float64"),
]


@pytest.fixture(scope="module")
def trained():
    return unseam.train(TRIALS, device="cpu")


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    unseam.save(trained, folder)
    return folder


def counted(monkeypatch, owner, name, calls):
    """Count the calls of a function."""
    function = getattr(owner, name)

    def counting(*args, **options):
        calls.append((name, *args))
        return function(*args, **options)

    monkeypatch.setattr(owner, name, counting)


# Reading


def test_nothing_is_read_before_it_is_asked_for(folder, monkeypatch):
    calls = []
    for name in ("read_json", "read_tensors", "read_table"):
        counted(monkeypatch, checkpoint, name, calls)
    run = Run.open(folder)
    assert [call[1].name for call in calls] == ["run.json"]
    assert (len(run), run.trials, run.path) == (4, tuple(TRIALS), folder)
    assert run.about["versions"]["unseam"] == unseam.__version__
    assert [run.ensemble is run.ensemble, run.scores] == [True, None]
    assert [call[1].name for call in calls] == ["run.json", "weights.safetensors", "history.parquet"]


def test_no_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run.json; is it the folder of a run"):
        Run.open(tmp_path)


def test_loading_draws_nothing_and_changes_nothing(folder, trained, monkeypatch):
    def never(*_, **__):
        raise AssertionError("weights were drawn")

    monkeypatch.setattr(sys.modules["unseam.training.learner"], "initialise", never)
    monkeypatch.setattr(torch, "Generator", never)
    before = torch.random.get_rng_state()
    loaded = Run.open(folder).ensemble
    members = [loaded[member].state_dict() for member in range(len(loaded))]
    assert torch.equal(torch.random.get_rng_state(), before)
    monkeypatch.undo()
    for member, held in enumerate(members):
        expected = trained[member].state_dict()
        assert held.keys() == expected.keys()
        assert all(torch.equal(held[name], expected[name]) for name in expected)
        assert {value.dtype for value in held.values()} == {value.dtype for value in expected.values()}
    x = Run.open(folder).world.images(torch.arange(10))
    for held, expected in zip(loaded.encode(x), trained.encode(x), strict=True):
        assert torch.equal(held, expected)


# Splits


def test_held_out_items_are_those_that_training_does_not_see(folder):
    run = Run.open(folder)
    items = len(run.world)
    parts = run.split()
    assert torch.equal(parts.train, training_index(TRIAL, items))
    assert sorted(torch.cat(parts).tolist()) == list(range(items))
    held = run.held_out(10, seed=3)
    assert len(held) == 10 and set(held.tolist()) <= set(parts.test.tolist())
    assert torch.equal(held, run.held_out(10, seed=3)) and not torch.equal(held, run.held_out(10))
    assert torch.equal(run.held_out(10**6), parts.test)


def test_all_items_are_measured_where_none_is_held_out():
    assert [part.tolist() for part in split_items(unseam.Trial(), 10)] == [list(range(10))] * 3


# Codes


def test_codes_are_the_members(folder, trained):
    run = Run.open(folder)
    index = run.held_out(20)
    codes = run.codes([2, 3], points=20)
    for place, member in enumerate((2, 3)):
        with torch.no_grad():
            mean, variance = trained[member].encode(run.world.images(index).to(run.subject(member).kind[1]))
        variance = variance.diagonal(dim1=-2, dim2=-1) if variance.ndim > 2 else variance
        torch.testing.assert_close(codes.mean[place], mean.double())
        torch.testing.assert_close(codes.variance[place], variance.double())
    assert torch.equal(codes.factors, run.world.factors[index])


def test_an_item_is_encoded_once_by_a_member(folder):
    run, seen = Run.open(folder), []
    for member in (0, 1):
        subject = run.subject(member)

        def encoder(x, encode=subject.encoder, member=member):
            seen.append((member, len(x)))
            return encode(x)

        run._cache.put(("subject", member), dataclasses.replace(subject, encoder=encoder))
    found = run.inspect([0], points=12)[0]
    first = run.codes([0, 1], points=20)
    second = run.codes([1, 0], points=30)
    assert seen == [(0, 12), (0, 8), (1, 20), (1, 10), (0, 10)]
    assert torch.equal(first.mean[0, :12], found.mean)
    assert torch.equal(first.mean.flip(0), second.mean[:, :20])
    assert torch.equal(first.factors, second.factors[:20])


def test_a_run_has_one_world(folder):
    run = Run(None, [TRIAL, unseam.Trial(world="linear")], {}, lambda: None)
    with pytest.raises(ValueError, match="members must share a world, got sprites .* and linear"):
        run.world
    given = unseam.data.load("sprites", **dict(TRIAL.world_options))
    assert Run.open(folder, world=given).data is given


# Threads


def test_threads_share_what_is_computed():
    calls = []
    cache = Cache()

    def slow():
        calls.append(1)
        return object()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: cache.once("key", slow), range(64)))
    assert len(calls) == 1 and len({id(one) for one in found}) == 1


def test_threads_share_a_run(folder, monkeypatch):
    calls = []
    counted(monkeypatch, checkpoint, "read_tensors", calls)
    counted(monkeypatch, sys.modules["unseam.run"], "load", calls)
    run = Run.open(folder)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: run.codes(points=10).mean, range(16)))
    assert all(torch.equal(one, found[0]) for one in found)
    assert sorted(call[0] for call in calls) == ["load", "read_tensors"]


# Commands


def test_a_report_reads_loads_and_encodes_once(folder, monkeypatch, capsys, tmp_path):
    calls, encoded = [], []
    for name in ("read_json", "read_tensors", "read_table"):
        counted(monkeypatch, checkpoint, name, calls)
    counted(monkeypatch, sys.modules["unseam.run"], "load", calls)
    encode = unseam.models.VAE.encode

    def counting(self, x):
        encoded.append((id(self), len(x)))
        return encode(self, x)

    monkeypatch.setattr(unseam.models.VAE, "encode", counting)
    monkeypatch.setattr(sys, "argv", ["unseam", "report", str(folder), "--out", str(tmp_path / "r.html")])
    main()
    names = [call[0] for call in calls]
    assert sorted(names) == ["load", "read_json", "read_table", "read_tensors"]
    held = len(split_items(TRIAL, 24 * 6).test)
    # every member once, and seeds of one model once more at the items that they are compared at
    assert [count for _, count in encoded] == [held] * 6
    assert len({member for member, _ in encoded}) == 4


@pytest.mark.parametrize("statement", ["import unseam.report", "from unseam.run import Run", "COMMAND"])
def test_no_paper_is_imported(statement, folder, root):
    if statement == "COMMAND":
        statement = (
            f"import sys; sys.argv = ['unseam', 'inspect', {str(folder)!r}, '--points', '5', '--json']; "
            "from unseam.cli import main; main()"
        )
    code = f"{statement}; import sys; print([name for name in sys.modules if 'unseam.papers' in name])"
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "", "PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("owner", [unseam, unseam.run, Run], ids=lambda owner: owner.__name__)
def test_what_is_drawn_without_a_seed_is_drawn_with_seed_0(owner):
    seeds = {}
    for name in dir(owner):
        if not name.startswith("_") and inspect.isroutine(function := getattr(owner, name)):
            parameters = inspect.signature(function).parameters
            seeds |= {name: parameters["seed"].default} if "seed" in parameters else {}
    given = [seed for seed in seeds.values() if seed is not inspect.Parameter.empty]
    assert given and all(type(seed) is int and seed == 0 for seed in given), seeds
