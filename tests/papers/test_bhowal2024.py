"""bhowal2024: measured as the library measures single models, scored as defined, judged by rules that can fail."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from torch.nn import functional

import unseam
from unseam import geometry
from unseam.models import Encoding
from unseam.papers import Workplace, artefacts, on_world, results_folder
from unseam.papers.bhowal2024 import runs
from unseam.papers.bhowal2024.beyond import MEASURES, SCORED, _scopes
from unseam.papers.bhowal2024.correlations import differences, rank_correlation
from unseam.papers.bhowal2024.local import around, held_out_shifts
from unseam.papers.bhowal2024.losses import _distance
from unseam.papers.bhowal2024.losses import _findings as losses_judged
from unseam.papers.bhowal2024.measures import entropy_gaps, measured, scores
from unseam.papers.bhowal2024.rows import judgement
from unseam.papers.bhowal2024.rules import by_seed, lower, moved, paired, score_findings
from unseam.papers.bhowal2024.runs import _name, codes_scored, followed, trained
from unseam.papers.bhowal2024.scores import MIG, TABLES
from unseam.papers.bhowal2024.setups import (
    CELLS,
    EVERY_CELL,
    FACES,
    MANY_SPRITES,
    ROWS,
    SHAPES,
    SPRITES,
    Cell,
    Group,
    GroupSettings,
    smoke,
)
from unseam.papers.bhowal2024.table6 import with_od

HERE = Workplace(torch.device("cpu"))
TINY = smoke(SPRITES, steps=300)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(scope="module")
def ensemble():
    world = TINY.load()
    return unseam.train(TINY.trials(Cell("β-VAE", 0.05)), world=world), world


# Measures


def test_members_are_measured_as_single_models(ensemble):
    models, world = ensemble
    found = measured(models, world, TINY)
    test = unseam.data.split(len(world), (0.8, 0.1, 0.1), seed=0)[2][: TINY.scored]
    for seed, (model, row) in enumerate(zip(models, found.members, strict=True)):
        mean, variance = model.encode(world.images(test))
        factors = world.factors[test]
        binned = unseam.metrics.mig(mean.detach(), factors)
        assert row["mig_binned"] == pytest.approx(float(binned.score), abs=1e-6)
        kl = (mean.square() + variance - variance.log() - 1).mean(0) / 2
        assert row["active"] == int((kl > 0.01).sum())
        double = model.double()
        jacobian = geometry.jacobian(double.decode, mean[: TINY.points].detach().double())
        distances = geometry.od_distances(jacobian)
        own = [point for point in found.points if point["seed"] == seed]
        assert [point["jacobian_turned"] for point in own] == pytest.approx(
            distances.right.tolist(), abs=1e-5
        )
        stretched = [point["jacobian_stretched"] for point in own]
        assert stretched == pytest.approx(distances.scale.tolist(), rel=1e-3, abs=1e-6)
        live = jacobian[..., kl > 0.01]
        invariant = geometry.od_score(live, form="invariant").mean()
        assert row["od_invariant"] == pytest.approx(float(invariant), abs=1e-5)


def test_fits_end_where_the_last_steps_do(ensemble):
    models, world = ensemble
    found = measured(models, world, TINY)
    for row in found.members:
        last = [fit for fit in found.fits if fit["seed"] == row["seed"]][-1]
        assert last["steps"] == TINY.fit_steps[-1]
        assert (last["linear"], last["nonlinear"]) == (row["linear"], row["nonlinear"])


def test_gaps_are_those_of_the_library_and_leave_factors_out():
    factors = torch.cartesian_prod(torch.arange(3), torch.arange(4), torch.arange(5))
    codes = (factors.double() @ normal(3, 3)).expand(2, -1, -1)
    code = Encoding(codes, torch.full_like(codes, 0.05))
    preset = unseam.metrics.MigEntropySettings(excluded=(0,))
    found = unseam.metrics.mig_entropy(*code[:1], factors, variance=code.variance, preset=preset)
    gaps, gaps_sup = entropy_gaps(code, factors, excluded=(0,))
    torch.testing.assert_close(gaps, found.score)
    shares = found.information[0][:, 1:] / torch.tensor([4.0, 5.0]).log()
    by_hand = (shares[:, 0] - shares[:, 1]).abs().mean()
    assert float(gaps_sup[0]) == pytest.approx(float(by_hand))
    passive = code.mean * torch.tensor([1.0, 1e-3, 1.0])
    alone = entropy_gaps(Encoding(passive, code.variance), factors, excluded=(0,))[1]
    expected = (shares[:, 0] - shares[:, 1]).abs()[[0, 2]].mean()
    assert float(alone[0]) == pytest.approx(float(expected), rel=1e-6)


class Bent(torch.nn.Module):
    """A decoder tanh(Az): one non-linearity, as the local decoders that are fitted to it."""

    def __init__(self, bend):
        super().__init__()
        self.matrix = torch.nn.Parameter(0.8 * normal(12, 2).float())
        self.bend = bend
        self.likelihood = unseam.models.Gaussian()

    def decode(self, z):
        output = z @ self.matrix.mT
        return output.tanh() if self.bend else output


@pytest.mark.parametrize("bend", [True, False])
def test_the_non_linear_fit_is_better_where_the_decoder_bends_and_only_there(bend):
    setup = dataclasses.replace(TINY, noises=32, held_out=32, fit_steps=(200, 400))
    code = Encoding(torch.zeros(6, 2), torch.ones(6, 2))
    row = around(Bent(bend), code, torch.ones(2).bool(), setup).summary
    assert (row["nonlinear"] < 0.1 * row["linear"]) == bend
    assert (row["loss_nonlinear"] < 0.1 * row["loss_jacobian"]) == bend
    assert row["better"] == float(bend)


def test_jacobian_and_fits_are_judged_at_the_same_noises():
    code = Encoding(torch.zeros(6, 2), torch.rand(6, 2, generator=torch.Generator().manual_seed(3)))
    model = Bent(False)
    fit = geometry.local_fit(
        model.decode,
        *code,
        generator=torch.Generator().manual_seed(0),
        noises=TINY.noises,
        held_out=TINY.held_out,
    )
    predicted = model.decode(held_out_shifts(code, TINY)).square().sum(-1).mean(0)
    torch.testing.assert_close(predicted.detach(), fit.stochastic)


def test_the_law_is_found_where_it_holds_and_not_in_its_control():
    model = Bent(False)
    squares = model.matrix.detach().square().sum(0)
    code = Encoding(torch.zeros(6, 2), (0.01 / squares).expand(6, 2))
    row = around(model, code, torch.ones(2).bool(), TINY).summary
    assert row["slope"] == pytest.approx(-1, abs=1e-4)
    assert row["slope_control"] == pytest.approx(1, abs=1e-4)


def test_with_the_whole_kl_another_law_holds():
    """σ² = 1 / (1 + 2‖c‖²/β): its slope is above −1, and that of σ²/(1 − σ²) is −1."""
    model = Bent(False)
    squares = model.matrix.detach().square().sum(0)
    code = Encoding(torch.zeros(6, 2), (1 / (1 + squares / 3)).expand(6, 2))
    row = around(model, code, torch.ones(2).bool(), TINY, audited=False).summary
    assert row["slope"] > -0.9 and row["slope_whole"] == pytest.approx(-1, abs=1e-3)
    assert "at_perfect" not in row


# The OD-Score


def test_scores_from_tables_are_those_of_the_library():
    matrices = normal(3, 7, 9, 4)
    distances = geometry.od_distances(matrices)
    rows, points = [], []
    for model, cell in enumerate(CELLS):
        named = {"world": "sprites", "family": cell.family, "beta": cell.beta, "seed": 0}
        rows.append(named)
        for point in range(7):
            pair = {"turned": distances.right[model, point], "stretched": distances.scale[model, point]}
            own = {name: float(value) for name, value in pair.items()}
            points.append(
                named | {"point": point} | own | {f"jacobian_{name}": value for name, value in own.items()}
            )
    found = with_od(pd.DataFrame(rows), pd.DataFrame(points))
    assert found["od_paper"].tolist() == pytest.approx(geometry.od_score(matrices).mean(1).tolist())


def test_models_of_other_seeds_are_not_compared():
    rows = pd.DataFrame({"world": "w", "family": ["VAE", "β-VAE"] * 2, "beta": 1.0, "seed": [0, 0, 1, 1]})
    points = rows.assign(point=0, turned=[1.0, 2.0, 10.0, 20.0], stretched=0.0)
    points = points.assign(jacobian_turned=1.0, jacobian_stretched=1.0)
    assert with_od(rows, points)["od_paper"].tolist() == pytest.approx([1 / 3, 2 / 3] * 2)
    together = with_od(rows, points, compared=("world",))["od_paper"]
    assert together.tolist() == pytest.approx([2 / 60, 4 / 60, 20 / 60, 40 / 60])


# Rules


def test_paired_errors_can_be_worse_equal_or_too_few():
    high, low = np.linspace(1.0, 1.2, 6), np.linspace(0.8, 1.1, 6)
    assert paired("", "", low, high).verdict == "reproduced"
    assert paired("", "", high, low).verdict == "not reproduced"
    assert paired("", "", high, high).verdict == "not reproduced"
    assert paired("", "", low[:3], high[:3]).verdict == "not reproduced"
    assert paired("", "", 0.999 * high, high).verdict == "partly", "sure, and next to nothing"


def test_orders_are_paired_where_models_are_compared_with_each_other():
    """Two families that vary together, one a little below the other: no test of unpaired runs would see it."""
    shared = np.linspace(0, 1, 6)
    table = pd.DataFrame(
        {
            "family": ["VAE"] * 6 + ["β-VAE"] * 6,
            "seed": [*range(6), *reversed(range(6))],
            "od": [*(shared + 0.01), *reversed(shared)],
        }
    )
    assert by_seed("", table, "od", "β-VAE", "VAE").verdict == "reproduced"
    assert by_seed("", table, "od", "VAE", "β-VAE").verdict == "not reproduced"
    assert lower("", [1.0, np.nan, np.nan], [2.0, 1.0, 3.0]).measured is None


def test_nothing_is_reproduced_before_it_has_settled():
    scores = members({"β-TCVAE": 0.5, "β-VAE": 0.25, "VAE": 0.14})
    before = scores.assign(step=5, mig=scores["mig"] - 0.1 * (scores["family"] == "VAE"))
    moving = moved(pd.concat([scores.assign(step=10), before]), "mig")
    assert moving == pytest.approx(
        {("sprites", "β-TCVAE"): 0, ("sprites", "β-VAE"): 0, ("sprites", "VAE"): 0.1}
    )
    found = list(score_findings(scores, "mig", "MIG", MIG, larger_is_better=True, moving=moving))
    assert [one.verdict for one in found] == ["reproduced"] * 2 + ["partly"] * 3 + ["reproduced"]
    assert "not settled" in found[2].note


def members(scores):
    rows = [
        {
            "world": "sprites",
            "family": cell.family,
            "beta": cell.beta,
            "seed": seed,
            "mig": scores[cell.family] + seed / 100,
        }
        for cell, seed in itertools.product(CELLS, range(5))
    ]
    return pd.DataFrame(rows)


def test_tables_of_scores_judge_cells_and_orders():
    found = list(
        score_findings(
            members({"β-TCVAE": 0.5, "β-VAE": 0.25, "VAE": 0.14}), "mig", "MIG", MIG, larger_is_better=True
        )
    )
    assert [one.verdict for one in found] == ["reproduced"] * 6
    found = list(
        score_findings(
            members({"β-TCVAE": 0.1, "β-VAE": 0.3, "VAE": 0.5}), "mig", "MIG", MIG, larger_is_better=True
        )
    )
    assert [one.verdict for one in found[3:]] == ["not reproduced"] * 3


def test_orders_that_published_spreads_do_not_tell_apart_are_not_asked_for():
    table = members({"β-TCVAE": 0.5, "β-VAE": 0.25, "VAE": 0.14}).assign(world="shapes")
    found = list(score_findings(table, "mig", "MIG", MIG, larger_is_better=True))
    assert len(found) == 5


def test_correlation_within_cells_is_not_that_between_them():
    rows = [
        {"family": "VAE", "beta": float(group), "a": group + step / 10, "b": 2 * group - step / 10}
        for group, step in itertools.product(range(4), range(6))
    ]
    table = pd.DataFrame(rows)
    assert rank_correlation(table, "a", "b", scope="cells")[0] == pytest.approx(-1)
    assert rank_correlation(table, "a", "b", scope="between")[0] == pytest.approx(1)
    rho, lower, upper, models = rank_correlation(table, "a", "b")
    assert 0 < lower < upper < 1 and 0 < rho < 1 and models == 24
    assert np.isnan(rank_correlation(table[:3], "a", "b")[1])


def test_correlation_within_families_keeps_what_beta_does_and_not_what_families_do():
    rows = [
        {"family": family, "beta": beta, "a": place + beta + step / 99, "b": 9 * place - beta - step / 99}
        for place, family in enumerate(("VAE", "β-VAE"))
        for beta, step in itertools.product((0.1, 0.2), range(5))
    ]
    table = pd.DataFrame(rows)
    assert rank_correlation(table, "a", "b", scope="families")[0] == pytest.approx(-1)
    assert rank_correlation(table, "a", "b")[0] > 0


# Trainings


def test_trainings_are_kept_and_found_again(tmp_path, monkeypatch):
    setup, place = smoke(SPRITES, seeds=1, steps=2), Workplace(torch.device("cpu"), shared=tmp_path)
    first = followed(setup, CELLS[0], place)
    monkeypatch.setitem(followed.__globals__, "_follow", lambda *given: pytest.fail("trained again"))
    again = followed(setup, CELLS[0], place)
    for one, other in zip(first, again, strict=True):
        pd.testing.assert_frame_equal(one, other, rtol=1e-4, atol=1e-6, check_dtype=False)
    with pytest.raises(pytest.fail.Exception):
        followed(setup, CELLS[1], place)


def test_scores_are_recorded_along_the_way_and_end_where_members_do():
    setup = smoke(SPRITES, seeds=2, steps=40)
    found = followed(setup, CELLS[1], HERE)
    assert sorted(set(found.path["step"])) == [10, 20, 30, 40]
    last = found.path[found.path["step"] == 40].reset_index(drop=True)
    pd.testing.assert_frame_equal(last[["seed", "mig", "kl"]], found.members[["seed", "mig", "kl"]])
    again = followed(dataclasses.replace(setup, marks=()), CELLS[1], HERE).members
    pd.testing.assert_frame_equal(again, found.members)


def test_measuring_on_the_way_leaves_batch_normalisation_in_training():
    options = (("orientations", 2), ("positions", 4), ("scales", 2))
    setup = smoke(FACES, world="sprites", options=options, seeds=1, points=3, latent=2, steps=4)
    plain, followed_up = (
        followed(dataclasses.replace(setup, marks=marks), CELLS[1], HERE).members["rec"]
        for marks in ((), (0.5,))
    )
    assert plain.tolist() == followed_up.tolist()


def test_the_released_procedure_is_followed_for_the_papers_models_alone():
    setup = smoke(SPRITES, seeds=1, steps=2)
    assert len(followed(setup, CELLS[0], HERE).signs)
    other = followed(setup, Cell("β-VAE", 2.0), HERE)
    assert not len(other.signs) and "at_perfect" not in other.members


def test_data_that_are_not_here_are_named_and_the_others_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tables = trained((smoke(FACES), smoke(SPRITES, seeds=1, steps=2)), HERE, cells=CELLS[2:])
    assert set(tables["members"]["world"]) == {"sprites"}
    (missing,) = judgement(tables, lambda found: [], "").findings
    assert missing.verdict == "cannot be run here" and "faces3d" in missing.note


def test_three_families_are_the_papers():
    tcvae, beta_vae, vae = (SPRITES.trials(cell)[0] for cell in CELLS)
    assert (tcvae.objective, tcvae.beta) == ("beta_tcvae", 6.0)
    assert (beta_vae.objective, beta_vae.beta) == (vae.objective, 6.0)
    assert vae.beta == 1.0 and vae.learning_rate == 1e-3 and vae.optimiser == "adam"
    assert len(EVERY_CELL) * MANY_SPRITES.seeds >= 100
    assert all(setup.points >= 200 and setup.seeds >= 5 for setup in ROWS)


@pytest.mark.parametrize("key", ["table1", "theorem2", "beyond", "audit"])
def test_published_files_take_the_place_of_their_twins(key):
    settings = on_world(artefacts()[f"bhowal2024.{key}"].presets["full"], "dsprites")
    assert "'dsprites'" in str(settings) and "'sprites'" not in str(settings)
    if key == "theorem2":
        assert settings.groups[0].cells[0].family == "β-TCVAE"


def test_squared_error_is_eq_5():
    """−log p(x|z) less its constant is ‖x − x̃‖², so that β weighs the KL as in Eq. 5."""
    trial = SHAPES.trials(CELLS[1])[0]
    likelihood = unseam.models.Gaussian(trial.likelihood_variance)
    x, output = torch.rand(1, 7), torch.rand(1, 7)
    cost = likelihood.log_prob(x, x) - likelihood.log_prob(x, output)
    torch.testing.assert_close(cost, (x - output).square().sum(1))


@pytest.mark.parametrize("key", [key for key in artefacts() if key.startswith("bhowal2024.table")])
def test_findings_and_figures_without_data(key):
    tables = {"missing": pd.DataFrame({"world": ["mpi3d"], "need": ["its file"]})}
    found = artefacts()[key].outcome(tables)
    assert [(one.quantity, one.note) for one in found.findings] == [("MPI3D", "its file")] and not found.note
    assert isinstance(artefacts()[key].draw(tables), Figure)


def test_batch_normalised_decoders_are_measured_in_evaluation_mode():
    options = (("orientations", 2), ("positions", 4), ("scales", 2))
    setup = smoke(FACES, world="sprites", options=options, seeds=1, points=3, latent=2)
    world = setup.load()
    models = unseam.train(setup.trials(Cell("β-VAE", 0.05)), world=world)
    row = measured(models, world, setup).members[0]
    test = unseam.data.split(len(world), (0.8, 0.1, 0.1), seed=0)[2][: setup.points]
    model = models[0]
    z = model.encode(world.images(test)).mean.detach().double()
    basis = geometry.local_basis(model.double().decode, z)
    dto = geometry.distance_to_orthogonality(basis.right_vectors).mean()
    assert row["dto"] == pytest.approx(float(dto), abs=1e-4)


def test_a_cell_with_a_diverged_model_is_not_kept(tmp_path, monkeypatch):
    """Models are compared seed by seed, so one that stood still must not stand beside the others."""
    steps = runs.training_steps

    def stumbling(stack, world, **options):
        stack.alive[1], stack.stopped_at[1] = False, 7
        return steps(stack, world, **options)

    monkeypatch.setattr(runs, "training_steps", stumbling)
    with pytest.raises(RuntimeError, match=r"VAE on sprites diverged, by seed and step: \{1: 7\}"):
        followed(smoke(SPRITES), CELLS[2], Workplace(torch.device("cpu"), shared=tmp_path))
    assert not list(tmp_path.iterdir())


def test_measures_are_compared_over_the_same_models():
    """A measure in another unit does not differ at all, however few models there are; one without noise leads."""
    draw = np.random.default_rng(0)
    score = draw.normal(size=40)
    table = pd.DataFrame({"family": "VAE", "beta": np.repeat([1.0, 2.0], 20), "score": score})
    table = table.assign(a=-score, b=-np.exp(score), c=-score + draw.normal(size=40))
    found = {(one, other): rest for one, other, rest in differences(table, ("a", "b", "c"), "score")}
    assert found["a", "b"][:3] == (0.0, 0.0, 0.0)
    whole = rank_correlation(table, "a", "score").rho - rank_correlation(table, "c", "score").rho
    assert found["a", "c"].rho == pytest.approx(whole)
    assert found["a", "c"].upper < 0
    assert list(differences(table.assign(a=np.nan), ("a", "b"), "score")) == []


def test_groups_of_models_are_looked_at_by_themselves(tmp_path, monkeypatch):
    """The long-trained are not ranked among those that were stopped early, nor is a missing file named twice."""
    here = Workplace(torch.device("cpu"), shared=tmp_path)
    beyond = artefacts()["bhowal2024.beyond"]
    groups = tuple(Group(smoke(SPRITES, seeds=5, steps=steps), CELLS[1:]) for steps in (2, 30))
    tables = beyond.measure(GroupSettings(groups), here)
    table, findings = tables["correlations"], beyond.judge(tables).findings
    assert set(table["steps"]) == {2, 30} and table["models"].max() == 10
    for group, (steps, own) in zip(groups, table.groupby("steps"), strict=True):
        alone = beyond.measure(GroupSettings((group,)), here)["correlations"]
        assert group.setup.steps == steps
        pd.testing.assert_frame_equal(own.reset_index(drop=True), alone)
    assert sum("30 steps" in one.quantity for one in findings) == len(findings) / 2
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    missing = beyond.measure(on_world(GroupSettings(groups), "dsprites"), here)
    assert list(missing) == ["missing"] and len(missing["missing"]) == 1
    partly = (*groups, dataclasses.replace(groups[0], setup=smoke(FACES)))
    *found, last = beyond.judge(beyond.measure(GroupSettings(partly), here)).findings
    assert len(found) == len(findings) and last.verdict == "cannot be run here"


def test_groups_that_could_be_taken_for_each_other_are_refused():
    with pytest.raises(ValueError, match="must differ in their steps"):
        GroupSettings((Group(SPRITES, CELLS), Group(SPRITES, EVERY_CELL)))


@pytest.mark.parametrize(
    "cells, scopes",
    [(CELLS, ["all", "cells"]), (EVERY_CELL, ["all", "families", "cells", "between"])],
)
def test_scopes_that_tell_something(cells, scopes):
    """Three families of one β each are their cells, and three means are not ranked."""
    assert _scopes(pd.DataFrame([dataclasses.asdict(cell) for cell in cells])) == scopes


def test_figure_of_measures_has_a_colour_for_every_scope():
    """Of groups with different scopes too."""
    names = ("world", "steps", "scope", "measure", "score", "rho", "lower", "upper", "models")
    scopes = {12: ("all", "families", "cells", "between"), 120: ("all", "cells")}
    rows = [
        ("sprites", steps, scope, measure, score, rho, rho - 0.1, rho + 0.1, 18)
        for steps, own in scopes.items()
        for rho, scope in zip((-0.4, -0.3, -0.2, -0.1), own, strict=False)
        for measure in MEASURES
        for score in SCORED
    ]
    figure = artefacts()["bhowal2024.beyond"].draw({"correlations": pd.DataFrame(rows, columns=names)})
    first, second = ([line for line in axes.lines if len(line.get_xdata()) == 6] for axes in figure.axes[::4])
    assert [line.get_xdata()[0] for line in second] == [-0.4, -0.3]
    assert [line.get_color() for line in second] == [first[place].get_color() for place in (0, 2)]
    assert len(figure.legends[0].get_texts()) == 4
    assert "120 steps" in figure.axes[4].get_title(loc="left")


@pytest.mark.parametrize(
    "key",
    [
        key
        for key, artefact in artefacts().items()
        if key.startswith("bhowal2024.")
        and (hasattr(artefact.presets["full"], "setups") or hasattr(artefact.presets["full"], "groups"))
    ],
)
def test_trainings_of_full_scale_are_committed(key):
    """Measuring an artefact again trains nothing."""
    settings = artefacts()[key].presets["full"]
    groups = [(group.setup, group.cells) for group in getattr(settings, "groups", ())]
    setups = getattr(settings, "setups", ())
    groups += [(setup, CELLS) for setup in setups if setup.world in ("sprites", "shapes")]
    assert groups
    for setup, cells in groups:
        for cell in cells:
            assert (results_folder() / "bhowal2024" / "trainings" / f"{_name(setup, cell)}.json").exists()


def test_every_loss_is_drawn_at_its_own_end():
    rows = [
        {"world": "sprites", "family": one.family, "beta": one.beta, "step": step, "loss": loss}
        | {"mig": step / 1000, "mig_sup": 0.0}
        for loss, steps in (("short", (10, 20)), ("long", (100, 200)))
        for one in CELLS
        for step in steps
    ]
    figure = artefacts()["bhowal2024.losses"].draw({"path": pd.DataFrame(rows)})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["short", "long", "published"]
    drawn = [float(y) for line in figure.axes[0].lines if line.get_marker() == "o" for y in line.get_ydata()]
    assert drawn == [0.02, 0.2] * 3


def test_figure4_draws_both_forms():
    keys = ("mig", "mig_sup", "od_paper", "od_invariant")
    rows = [
        {"world": "sprites", "family": one.family, "beta": one.beta, "seed": seed}
        | {key: turn + 0.1 * seed for turn, key in enumerate(keys)}
        for one in CELLS
        for seed in range(3)
    ]
    figure = artefacts()["bhowal2024.figure4"].draw({"members": pd.DataFrame(rows)})
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        *(one.family for one in CELLS),
        "published",
    ]
    drawn = [axes.lines[0] for axes in figure.axes[2:]]
    assert [line.get_xdata()[0] for line in drawn] == [2, 2, 3, 3]
    assert [line.get_ydata()[0] for line in drawn] == [0, 1, 0, 1]


def test_losses_share_the_printed_one_with_the_tables(tmp_path):
    """Where steps and seeds are the tables', nothing is trained again; smoke's differ in loss and decoder alone."""
    here = Workplace(torch.device("cpu"), shared=tmp_path)
    setups = artefacts()["bhowal2024.losses"].presets["smoke"].setups
    assert {dataclasses.replace(one, likelihood="gaussian", architecture="mlp") for one in setups} == {
        smoke(SPRITES)
    }
    found = followed(setups[0], CELLS[2], here)
    files = len(list(tmp_path.iterdir()))
    pd.testing.assert_frame_equal(
        codes_scored(setups[0], CELLS[2], here).path, found.path, rtol=1e-5, check_dtype=False
    )
    assert len(list(tmp_path.iterdir())) == files
    for setup in (setups[1], dataclasses.replace(setups[0], architecture="released_mlp")):
        other = codes_scored(setup, CELLS[2], here)
        files += 3
        assert len(list(tmp_path.iterdir())) == files
        assert list(other.path.columns) == list(found.path.columns)


def test_the_released_decoder_has_three_tanh_layers():
    """And nothing else differs."""
    printed, released = (
        dataclasses.replace(SPRITES, architecture=name).trials(CELLS[0])[0]
        for name in ("mlp", "released_mlp")
    )
    assert (released.decoder_widths, released.decoder_activation) == ((1200, 1200, 1200), "tanh")
    assert dataclasses.replace(released, decoder_widths=(1200, 1200), decoder_activation="relu") == printed


@pytest.mark.parametrize("weight", [1.0, 4.0])
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_losses_weigh_pixels_alike(likelihood, weight, generator):
    """−log p(x|z), less what does not depend on the output, is the weight times squared error or cross entropy."""
    trial = dataclasses.replace(SPRITES, likelihood=likelihood, weight=weight).trials(CELLS[0])[0]
    options = ("likelihood", "likelihood_variance", "likelihood_draws")
    model = unseam.models.build((7,), latent=2, **{name: getattr(trial, name) for name in options})
    x, output = torch.rand(2, 1, 7, generator=generator, dtype=torch.float64)
    costs = {
        "gaussian": lambda at: (x - at).square().sum(1),
        "bernoulli": lambda at: functional.binary_cross_entropy_with_logits(at, x, reduction="none").sum(1),
    }
    own, nothing = model.double().likelihood, torch.zeros_like(x)
    difference = own.log_prob(x, nothing) - own.log_prob(x, output)
    torch.testing.assert_close(difference, weight * (costs[likelihood](output) - costs[likelihood](nothing)))


def test_trained_variances_are_each_members_own():
    setup = smoke(SPRITES, weight=1.0, likelihood="gaussian_learned")
    world = setup.load()
    models = unseam.train(setup.trials(CELLS[1]), world=world, device="cpu")
    x = world.images(unseam.data.split(len(world), (0.8, 0.1, 0.1), seed=0)[2][: setup.points])
    for member, row in enumerate(scores(models, world, setup)):
        model = models[member]
        with torch.no_grad():
            expected = -model.likelihood.log_prob(x, model.decode(model.encode(x).mean)).mean()
        assert row["rec"] == pytest.approx(float(expected), rel=1e-6)


def test_a_trained_variance_starts_at_one_and_has_no_weight():
    trial = dataclasses.replace(SPRITES, likelihood="gaussian_learned").trials(CELLS[0])[0]
    assert (trial.likelihood, trial.likelihood_variance, trial.beta) == ("gaussian_learned", 1.0, 6.0)
    with pytest.raises(ValueError, match="has no weight of 4"):
        dataclasses.replace(SPRITES, likelihood="gaussian_learned", weight=4.0).trials(CELLS[0])


@pytest.mark.parametrize(
    ("away", "kl", "verdicts"),
    [
        (3.0, 0.1, ("reproduced", "not reproduced")),
        (1.0, 0.1, ("reproduced", "reproduced")),
        (1.0, 0.6, ("not reproduced", "partly")),
    ],
)
def test_a_loss_is_judged_by_its_distance_once_it_has_settled(away, kl, verdicts):
    rows = [
        {"world": "sprites", "family": one.family, "beta": one.beta, "seed": seed, "step": step}
        | {"kl": 6.0 - kl * (step == 90)}
        | {
            name: said["dSprites"][one.family].mean + away * said["dSprites"][one.family].std
            for name, _, said in TABLES
        }
        for one in CELLS
        for seed in range(3)
        for step in (90, 100)
    ]
    settling, distance, *_ = losses_judged(pd.DataFrame(rows))
    assert settling.measured == pytest.approx(kl / 6) and distance.measured == pytest.approx(away)
    assert (settling.verdict, distance.verdict) == verdicts


def test_both_tables_are_of_the_same_models(generator):
    """Where one table's scores follow from the other's, two tables tell no more than one."""
    rows = pd.DataFrame(
        [
            {"world": "sprites", "family": one.family, "beta": one.beta, "seed": seed}
            for one in CELLS
            for seed in range(6)
        ]
    )
    away = torch.randn(len(rows), generator=generator).numpy()
    for name, _, published in TABLES:
        said = [published["dSprites"][family] for family in rows["family"]]
        rows[name] = [one.mean + one.std * by for one, by in zip(said, away, strict=True)]
    found = _distance(rows)
    draw, drawn = np.random.default_rng(0), []
    for start in range(0, len(rows), 6):
        drawn.append(away[start : start + 6][draw.integers(6, size=(2000, 6))].mean(1))
    expected = np.quantile(np.sqrt(np.square(drawn).mean(0)), (0.025, 0.975))
    assert (found.lower, found.upper) == pytest.approx(tuple(expected), rel=1e-5)
