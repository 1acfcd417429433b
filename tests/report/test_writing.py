"""The page as a file: whole or not at all, the same bytes again, nothing from outside, readable by everyone."""

import os
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

import unseam
from unseam.papers import artefacts, committed, results_folder, save_result
from unseam.report import study, write

Page = runpy.run_path(str(Path(__file__).with_name("pages.py")))["Page"]


# The page


def test_page_is_well_formed_and_labelled(page):
    read = Page(page)
    assert read.headings[0] == 1 and read.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(read.headings, read.headings[1:], strict=False))
    assert read.unlabelled == []
    assert {"header", "nav", "main", "footer"} <= set(read.tags)
    assert all(scope in ("row", "col") for scope in read.cells)
    assert len(read.ids) == len(set(read.ids))
    links = [address[1:] for address in read.addresses if address.startswith("#")]
    assert links[0] == "main" and set(links) <= set(read.ids)


def test_nothing_comes_from_outside(page):
    read = Page(page)
    assert all(address.startswith(("#", "data:")) for address in read.addresses)
    assert not re.findall(r"@import|url\((?!\$|data:)|fetch\(|XMLHttp|WebSocket", page)
    assert not re.findall(r"https?://(?!www\.w3\.org)", page)


def test_same_run_gives_the_same_bytes(run, tmp_path):
    first, second = (write(run, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second
    assert len(first) < 8e6


def test_all_links_of_the_chain_are_told(page):
    titles = re.findall(r"<h2[^>]*>([^<]+)</h2>", page)
    assert titles == [
        "Verdict on each link",
        "What does each latent do?",
        "Which latents are active?",
        "Are the axes orthogonal?",
        "Do the latents match the factors?",
        "What to change",
    ]
    assert page.count("<summary>How it is measured</summary>") == 5


def test_page_is_complete_without_its_script(page):
    without = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    read = Page(without)
    assert "input" not in read.tags and "button" not in read.tags
    assert without.count('<img class="strip"') == 3 + 2 * 3
    assert without.count("<title>") > 50  # the browser's own tooltips


def test_large_models_stay_small(tmp_path):
    """Six models of noise, which does not compress: their pictures are thinned out."""
    generator = torch.Generator().manual_seed(0)
    weights, z = torch.randn(12, 3 * 64 * 64, generator=generator), torch.randn(20, 12, generator=generator)
    noisy = study(lambda z: torch.sigmoid(z @ weights).reshape(-1, 3, 64, 64), z)
    text = write([noisy] * 6, tmp_path / "six.html").read_text()
    assert 1e6 < len(text) < 8e6
    assert text.count('class="strip"') == 6 * 12


def test_default_path_is_in_the_run(run):
    path = write(str(run))
    assert path == run / "report.html"
    path.unlink()


def test_several_runs_have_their_names(run, tmp_path):
    text = write([run, run], tmp_path / "both.html").read_text()
    assert "4 models side by side: tiny: β-VAE, tiny: full covariance" in text


# What cannot be written


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([], "results must hold at least one run, study, inspection or artefact, got none"),
        (
            [3],
            r"results must be runs, subjects, .*: pass a model of your own as unseam.wrap\(model, x=x\), got int",
        ),
    ],
)
def test_bad_results(results, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write(results, tmp_path / "x.html")
    assert not list(tmp_path.iterdir())


def test_a_path_is_needed_where_there_is_no_run(studies):
    with pytest.raises(ValueError, match="path must name the file to write where results are not one run"):
        write(studies)


def test_a_folder_is_no_file(studies, tmp_path):
    with pytest.raises(ValueError, match="is a folder; give the name of a file"):
        write(studies, tmp_path)


def test_too_many_models(studies, tmp_path):
    with pytest.raises(ValueError, match="at most 6 models stand side by side, got 8; leave some out"):
        write([*studies] * 4, tmp_path / "x.html")


def test_artefacts_and_models_do_not_mix(studies, tmp_path):
    with pytest.raises(ValueError, match="results must be all artefacts or all models"):
        write(
            [studies[0], committed(artefacts()["sikka2019.figure1"], results_folder())], tmp_path / "x.html"
        )


def test_an_old_report_outlives_a_failed_one(studies, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="could not write .*report.html: no space left"):
        write(studies, path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


# Artefacts


def test_artefacts_have_their_findings_and_figures(tmp_path):
    kept = committed(artefacts()["sikka2019.figure1"], results_folder())
    text = write(kept, tmp_path / "artefact.html").read_text()
    read = Page(text)
    assert kept.findings[0].quantity in read.words
    assert str(kept.tally) in read.words
    assert text.split("<script>")[0].count("<svg") == 1 and read.unlabelled == []


# Commands


def test_command_writes_into_the_run(call, run):
    status, out, err = call("report", run, "--member", 0, "--points", 30)
    assert (status, err) == (0, "")
    assert f"Open {run / 'report.html'}" in out.replace("\n", "")
    (run / "report.html").unlink()


def test_command_of_several_runs(call, run, tmp_path):
    status, out, _ = call("report", run, run, "--member", 0, "--points", 30, "--out", tmp_path / "two.html")
    assert status == 0 and "two.html" in out


def test_command_of_a_decoder_says_what_is_missing(call, own, tmp_path):
    status, out, err = call("report", f"{own}:decoder", "--latent", 3, "--out", "mine.html")
    assert (status, err) == (0, "")
    assert "missing: Mutual information and scores. They compare an encoder's codes" in out
    text = (tmp_path / "mine.html").read_text()
    assert "What is missing, and why" in text and text.count('class="strip"') == 3


def test_command_of_a_decoder_with_data(call, own, tmp_path):
    np.save("x.npy", np.random.default_rng(0).random((40, 1, 8, 8), dtype="float32"))
    words = ("--data", "x.npy", "--encoder", f"{own}:encoder", "--beta", 2, "--json")
    status, out, _ = call("report", f"{own}:decoder", *words)
    assert status == 0
    assert '"report": "report.html"' in out and '"beta": 2.0' in out


def test_inspect_names_a_report(call, run, own, tmp_path):
    status, out, _ = call("inspect", run, "--member", 0, "--points", 30, "--report", "seen.html", "--json")
    assert status == 0 and '"report": "seen.html"' in out
    np.save("z.npy", np.random.default_rng(0).normal(size=(20, 3)).astype("float32"))
    status, out, _ = call("inspect", f"{own}:decoder", "--data", "z.npy", "--report", "own.html")
    assert status == 0 and "Open own.html" in out
    assert "DtO" in (tmp_path / "own.html").read_text()


def test_reproduce_names_a_report(call, tmp_path):
    save_result(committed(artefacts()["sikka2019.figure1"], results_folder()), tmp_path)
    status, out, _ = call("reproduce", "--out", tmp_path, "--report", tmp_path / "papers.html")
    assert status == 0 and "papers.html" in out.replace("\n", "")
    assert "Published beside measured" in (tmp_path / "papers.html").read_text()


BAD = {
    "no run": (("nowhere",), 1, "holds no run.json"),
    "neither points nor latents": (("m:decoder",), 2, "latent must say how many latents"),
    "encoder without data": (
        ("m:decoder", "--latent", 3, "--encoder", "m:encoder"),
        2,
        "--encoder needs --data",
    ),
    "likelihood": (("m:decoder", "--latent", 3, "--likelihood", "poisson"), 2, "likelihood must be one of"),
    "no decoder": (("m:absent", "--latent", 3), 2, "has no 'absent'"),
    "flag of a run": (("m:decoder", "--latent", 3, "--member", 0), 2, "are for a run"),
    "flag of a decoder": (("nowhere", "--latent", 3), 2, "are for a model of your own"),
    "mixed": (("nowhere", "m:decoder"), 2, "TARGET must be all runs or all decoders"),
    "failing": (("m:broken", "--latent", 3), 2, "out of paint"),
    "folder": (("m:decoder", "--latent", 3, "--out", "."), 2, "is a folder"),
}


@pytest.mark.parametrize(("words", "status", "message"), BAD.values(), ids=BAD.keys())
def test_bad_commands_leave_nothing(call, own, tmp_path, words, status, message):
    before = {path.name for path in tmp_path.iterdir()}
    words = [str(word).replace("m:", f"{own}:", 1) if str(word).startswith("m:") else word for word in words]
    found, out, err = call("report", *words)
    assert (found, out) == (status, "")
    assert message in err and len(err.splitlines()) == 1
    assert {path.name for path in tmp_path.iterdir()} - before <= {"__pycache__"}


def test_a_truncated_run(call, run, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "run.json").write_bytes((run / "run.json").read_bytes())
    (broken / "weights.safetensors").write_bytes((run / "weights.safetensors").read_bytes()[:100])
    status, out, err = call("report", broken)
    assert status != 0 and out == "" and "weights.safetensors" in err
    assert not (broken / "report.html").exists()


def test_a_path_that_cannot_be_written(call, own, tmp_path):
    (tmp_path / "file").touch()
    status, _, err = call("report", f"{own}:decoder", "--latent", 3, "--out", "file/report.html")
    assert status == 1 and len(err.splitlines()) == 1


def test_report_is_part_of_the_package():
    assert unseam.report.write is write
