"""`unseam reproduce`: what is listed, measured, kept and refused."""

import json

import pytest

import unseam
from unseam.cli import main
from unseam.cli.reproduce import chosen_artefacts, have_rows_on, run_artefacts
from unseam.papers import artefacts, committed, load_result, on_world


@pytest.fixture
def command(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr("sys.argv", ["unseam", "reproduce", *words])
        main()
        return capsys.readouterr().out

    return run


@pytest.mark.slow
def test_all_artefacts_are_listed_with_their_outcomes(command):
    rows = json.loads(command("--json"))
    assert [row["artefact"] for row in rows] == list(artefacts())
    assert all(row["outcome"] for row in rows)


def test_a_paper_is_listed_and_nothing_is_measured(command):
    shown = command("sikka2019")
    assert "sikka2019.figure2_two" in shown
    assert "allen2024" not in shown


def test_one_is_measured_and_kept(command, tmp_path):
    shown = command("sikka2019.propositions", "--scale", "smoke", "--out", str(tmp_path), "--device", "cpu")
    assert "published" in shown
    assert "unseam reproduce sikka2019.propositions --scale smoke" in shown
    assert shown.startswith("Smoke scale judges nothing"), "said first, not last"
    assert "nothing is judged" in shown
    result = load_result(
        tmp_path / "sikka2019" / "propositions.smoke.json", artefacts()["sikka2019.propositions"]
    )
    assert result.tally.positive
    assert (tmp_path / "sikka2019" / "propositions.smoke.svg").exists()
    assert result.about["versions"]["unseam"]
    assert not list((tmp_path / "sikka2019").glob(".*.work")), "checkpoints are of no use once it is done"


def test_json_of_one(command):
    words = ("sikka2019.propositions", "--scale", "smoke", "--json", "--device", "cpu")
    (record,) = json.loads(command(*words))
    assert record["scale"] == "smoke" and not record["judged"]
    assert record["findings"] and record["rules"][0]["rule"]


def test_without_a_scale_the_committed_result_is_shown(command):
    (record,) = json.loads(command("sikka2019.propositions", "--json"))
    assert record["scale"] == "full" and record["judged"]
    shown = command("sikka2019.propositions")
    assert "at full scale" in shown and "Smoke" not in shown
    assert "sikka2019-propositions.svg" in shown.replace("\n", ""), "says where its figure is"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("sikka2019.figure9",),
            "no artefact is named 'sikka2019.figure9'; this paper has sikka2019.figure1",
        ),
        (
            ("sikka2020",),
            "no artefact is named 'sikka2020'; papers are sikka2019, rolinek2019, bhowal2024, allen2024, ours",
        ),
        (
            ("sikka2019.propositions", "--scale", "huge"),
            "--scale must be one of smoke, laptop, full, got 'huge'",
        ),
    ],
)
def test_bad_names(monkeypatch, capsys, words, message):
    monkeypatch.setattr("sys.argv", ["unseam", "reproduce", *words])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code != 0
    assert message in capsys.readouterr().err


def test_every_artefact_has_a_paper():
    assert {artefact.paper for artefact in chosen_artefacts(None)} == {
        "sikka2019",
        "rolinek2019",
        "bhowal2024",
        "allen2024",
        "ours",
    }


def test_an_earlier_name_of_an_artefact_works():
    assert [artefact.key for artefact in chosen_artefacts("rolinek2019.foretold")] == [
        "rolinek2019.predicted"
    ]


def test_artefacts_of_a_paper_share_their_trainings(tmp_path):
    table, figure = (artefacts()[f"rolinek2019.{name}"] for name in ("table_s4", "figure_s5"))
    results = list(run_artefacts([table, figure], "smoke", out=tmp_path, device="cpu"))
    kept = sorted(path.name for path in (tmp_path / "rolinek2019" / "trainings").iterdir())
    assert len([name for name in kept if name.endswith(".json")]) == 3, "one per ratio"
    assert results[0].tables["members"].shape == results[1].tables["members"].shape


def test_artefacts_without_the_scale_are_named_and_left_out(capsys):
    chosen = [artefacts()["allen2024.figure1"], artefacts()["rolinek2019.table2_sprites"]]
    (result,) = run_artefacts(chosen, "laptop", out=None, device="cpu")
    assert result.artefact.key == "allen2024.figure1"
    assert "without laptop scale, and left out: rolinek2019.table2_sprites" in capsys.readouterr().err
    with pytest.raises(ValueError, match="has the scales smoke, full"):
        next(run_artefacts(chosen[1:], "laptop", out=None, device="cpu"))


def test_a_published_data_set_takes_the_place_of_its_twin(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    table = artefacts()["rolinek2019.table2_sprites"]
    (result,) = run_artefacts([table], "smoke", out=tmp_path, device="cpu", world="dsprites")
    assert [finding.outcome for finding in result.findings] == ["not run"]
    note = result.findings[0].note
    assert "world 'dsprites' needs the file" in note
    assert str(tmp_path) not in note  # results travel
    assert result.command == "unseam reproduce rolinek2019.table2_sprites --scale smoke --world dsprites"
    assert (
        load_result(tmp_path / "rolinek2019" / "table2_sprites.smoke.dsprites.json", table).world
        == "dsprites"
    )
    assert committed(table, tmp_path) is None, "it is no result of the twin"
    assert committed(table, tmp_path, "dsprites").findings[0].outcome == "not run"
    with pytest.raises(
        ValueError, match="no part of this artefact is measured on sprites, the twin of dsprites"
    ):
        next(
            run_artefacts(
                [artefacts()["rolinek2019.table_s4"]], "smoke", out=None, device="cpu", world="dsprites"
            )
        )
    with pytest.raises(ValueError, match="world must be one of dsprites, shapes3d, got 'mars'"):
        next(run_artefacts([table], "smoke", out=None, device="cpu", world="mars"))


def test_whoever_names_a_data_set_waits_for_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    table = artefacts()["bhowal2024.table6"]
    (result,) = run_artefacts([table], "full", out=None, device="cpu", world="dsprites")
    (finding,) = result.findings
    assert finding.quantity == "dSprites" and finding.outcome == "not run"
    settings = on_world(artefacts()["bhowal2024.beyond"].presets["full"], "shapes3d")
    assert [setup.base.world for setup in settings.setups] == ["shapes3d"]
    both = on_world(artefacts()["rolinek2019.predicted"].presets["full"], "dsprites")
    every = artefacts()["rolinek2019.predicted"].presets["full"].setups
    assert len(both.setups) == len(every), "data sets that are compared stay together"


def test_the_published_data_set_is_measured_as_its_twin(monkeypatch):
    """A stand-in for the file: the same grid of factors under its name."""
    twin = unseam.data.load("sprites", orientations=4, positions=4, resolution=8, scales=2)
    monkeypatch.setattr("unseam.papers.trainings.load", lambda name, **options: twin)
    (result,) = run_artefacts(
        [artefacts()["rolinek2019.table2_sprites"]], "smoke", out=None, device="cpu", world="dsprites"
    )
    assert result.findings[0].published == "0.76 ± 0.08"
    assert set(result.tables["members"]["world"]) == {"dsprites"}


def test_every_artefact_with_a_row_on_the_twin():
    """Those whose settings name the twin, whatever their paper."""
    for world, twin in (("dsprites", "sprites"), ("shapes3d", "shapes")):
        named = [
            key
            for key, artefact in artefacts().items()
            if any(f"world='{twin}'" in repr(preset) for preset in artefact.presets.values())
        ]
        assert [artefact.key for artefact in have_rows_on(world, chosen_artefacts(None))] == named
        assert len({key.split(".")[0] for key in named}) > 1
    full = have_rows_on("dsprites", chosen_artefacts("rolinek2019"), "full")
    assert artefacts()["rolinek2019.table2_sprites"] in full
    assert artefacts()["rolinek2019.table_s4"] not in full
    with pytest.raises(ValueError, match="world must be one of dsprites, shapes3d, got 'mars'"):
        have_rows_on("mars", chosen_artefacts(None))


def test_without_a_target_every_row_on_the_published_file_is_measured(command, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    few = {
        key: artefacts()[key]
        for key in ("rolinek2019.figure1", "rolinek2019.definition1_sprites", "ours.twins")
    }
    monkeypatch.setattr("unseam.papers.artefacts", lambda: few)
    monkeypatch.setattr(
        "sys.argv", ["unseam", "reproduce", "--world", "dsprites", "--scale", "smoke", "--json"]
    )
    main()
    shown = capsys.readouterr()
    assert [record["artefact"] for record in json.loads(shown.out)] == list(few)[1:]
    assert shown.err == ("not measured on sprites, the twin of dsprites, and left out: rolinek2019.figure1\n")
    rows = json.loads(command("--world", "dsprites", "--json"))
    assert [row["artefact"] for row in rows] == list(few)[1:], "without a scale they are listed"


def test_nothing_to_measure_is_an_error():
    chosen = [artefacts()[f"rolinek2019.{name}"] for name in ("figure1", "figure2")]
    with pytest.raises(ValueError, match="none of these artefacts is left"):
        next(run_artefacts(chosen, "smoke", out=None, device="cpu", world="dsprites"))


@pytest.mark.parametrize(
    ("out", "message"), [((), "without --out nothing of it is saved"), (("--out", "x"), "can be resumed")]
)
def test_whoever_stops_it_is_told_what_is_left(out, message, monkeypatch, capsys, tmp_path):
    def stop(*given, **options):
        raise unseam.training.Interrupted("stopped at step 3; work can be resumed", 15)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unseam.papers.reproduce", stop)
    monkeypatch.setattr("sys.argv", ["unseam", "reproduce", "rolinek2019.pca", "--scale", "smoke", *out])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 143 and message in capsys.readouterr().err
