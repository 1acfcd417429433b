"""What a report is made of and where it goes: refused before anything is measured, and told apart."""

import errno
import re
import shutil
from pathlib import Path

import pytest
import torch

import unseam
from unseam.papers import artefacts, committed, results_folder
from unseam.report import run_studies, study, write
from unseam.report.page import check_path, slim
from unseam.report.studies import compare_runs


def never(*_, **__):
    raise AssertionError("it was measured")


# Paths


@pytest.mark.parametrize("path", ["file/page.html", "."])
def test_reproduce_looks_at_the_path_first(call, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unseam.cli.reproduce.run_artefacts", never)
    (tmp_path / "file").touch()
    status, out, err = call("reproduce", "sikka2019.figure1", "--scale", "smoke", "--report", path)
    assert status != 0 and out == "" and len(err.splitlines()) == 1
    assert "is no folder" in err or "is a folder" in err


@pytest.mark.parametrize("path", ["file/page.html", "."])
@pytest.mark.parametrize("kind", ["run", "own"])
def test_inspect_looks_at_the_path_first(call, own, run, tmp_path, monkeypatch, path, kind):
    monkeypatch.setattr("unseam.Run.inspect", never)
    monkeypatch.setattr("unseam.Subject.inspect", never)
    (tmp_path / "file").touch()
    target = [run] if kind == "run" else [f"{own}:decoder", "--data", "points.npy"]
    status, out, err = call("inspect", *target, "--report", path)
    assert status != 0 and out == "" and len(err.splitlines()) == 1
    assert "is no folder" in err or "is a folder" in err
    assert not (run / "inspection").exists()


def test_report_looks_at_the_path_first(call, own, tmp_path, monkeypatch):
    monkeypatch.setattr("unseam.report.study", never)
    (tmp_path / "file").touch()
    status, out, err = call("report", f"{own}:decoder", "--latent", 3, "--out", "file/report.html")
    assert (status, out) == (1, "") and "could not write file/report.html" in err


def test_write_looks_at_the_path_first(run, tmp_path, monkeypatch):
    monkeypatch.setattr("unseam.report.studies.run_studies", never)
    with pytest.raises(ValueError, match="is a folder; give the name of a file"):
        write(run, tmp_path)


def test_a_folder_that_may_not_be_written_to(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(OSError, match="could not write .*new/page.html: .* may not be written to"):
        check_path(tmp_path / "new" / "page.html")
    assert not (tmp_path / "new").exists()


# Runs


def test_too_many_models_are_refused_before_any_is_measured(run, monkeypatch):
    monkeypatch.setattr("unseam.report.studies.run_studies", never)
    with pytest.raises(ValueError, match="at most 6 models stand side by side, got 8; leave some out"):
        compare_runs([unseam.Run.open(run)] * 4)


def test_folders_of_one_name_are_told_apart(run, tmp_path, monkeypatch):
    for above in ("a", "b"):
        shutil.copytree(run, tmp_path / above / "tiny")
    monkeypatch.chdir(tmp_path / "a" / "tiny")
    found = compare_runs([unseam.Run.open(at) for at in (".", "../../b/tiny")], members=[0], points=20)
    assert [made.name for group in found for made in group] == ["a/tiny", "b/tiny"]
    assert found[0][0].about["run"] == "tiny"


def test_a_member_that_diverged_is_named(run):
    opened = unseam.Run.open(run)
    with torch.no_grad():
        next(opened.subject(1).decoder.parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="member 1 cannot be measured, choose others: .* finite"):
        run_studies(opened, points=20)


# Decoders


def test_as_many_points_as_were_asked_for(call, own):
    status, out, _ = call("report", f"{own}:decoder", "--latent", 3, "--points", 40, "--json")
    assert status == 0 and '"points": 40' in out


def test_points_are_as_precise_as_the_decoder():
    decoder = torch.nn.Sequential(torch.nn.Linear(2, 5).double(), torch.nn.Tanh())
    assert study(decoder, latent=2, points=30).found.points == 30


def test_second_derivatives_of_many_latents_are_taken_at_fewer_points():
    counts = [
        study(lambda z: torch.tanh(z), latent=latent, points=90).factorisation.points for latent in (3, 40)
    ]
    assert counts == [90, 32]


# Figures of artefacts


@pytest.fixture(scope="module")
def kept():
    keys = ("sikka2019.figure1", "allen2024.theorem3")
    return [committed(artefacts()[key], results_folder()) for key in keys]


def test_figures_of_one_page_share_no_names(kept, tmp_path):
    text = write(kept, tmp_path / "two.html").read_text()
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names))
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', text)
    assert len(used) > 50 and set(used) <= set(names)


def test_slim_figures_have_all_their_marks(kept):
    figure = unseam.report.to_svg(kept[1].artefact.plot(kept[1].tables))
    made = slim(figure, "f0-")
    assert len(made) < 0.8 * len(figure)
    for tag in ("<use", "<path", "<image"):
        assert made.count(tag) == figure.count(tag)
    assert made.count("<g") == made.count("</g>")


@pytest.mark.parametrize(
    ("style", "grouped"),
    [("fill: red", True), ("fill: red; opacity: 0.5", False), ("fill-opacity: 0.5", True)],
)
def test_marks_share_a_style_where_that_is_the_same_picture(style, grouped):
    marks = "".join(f'<use xlink:href="#m" x="{x}.23456" y="2" style="{style}"/>\n' for x in range(3))
    made = slim(f'<svg><path id="m" d="M 0 1.23456 \nL 3 4 \n"/><g id="gone">{marks}</g></svg>', "p")
    assert made.startswith('<svg><path id="pm" d="M 0 1.23 L 3 4"/><g>')
    assert made.count(style) == (1 if grouped else 3)
    assert 'xlink:href="#pm" x="1.23" y="2"' in made
