"""Words and tables at every width of a terminal: nothing is broken within a word."""

import sys
import time
from types import SimpleNamespace

import pytest
import torch

import unseam
from unseam.cli.inspect import geometry_rows
from unseam.cli.printing import count_columns, print_table, print_words, working

WIDTHS = [80, 100, 140]


def inspected():
    """A decoder with everything measured, so that no column of the table is empty."""
    matrix = torch.tensor([[30.0, 1.0, 0.5], [0.0, 10.0, 2.0], [0.0, 0.0, 3.0]])
    encoder = lambda x: (x, torch.full_like(x, 0.01))  # noqa: E731
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    return unseam.inspect(lambda z: z @ matrix, encoder=encoder, x=x)


def words_of(rows):
    return {word for row in rows for text in (*row, *row.values()) for word in str(text).split()}


@pytest.mark.parametrize("name", ["mine:decoder", "member 0 (diagonal, β 1, seed 0)"])
@pytest.mark.parametrize("width", WIDTHS)
def test_geometry_keeps_words_whole(monkeypatch, capsys, width, name):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = geometry_rows({name: inspected()})
    assert None not in rows[0].values()
    print_table(rows, title="geometry")
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    assert words_of(rows) <= set(out.split())


def test_columns_go_on_below_after_the_one_that_names_the_rows(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    rows = [{"name": f"row-{row}", **{f"column-{k}": 10 * row + k for k in range(1, 6)}} for row in (1, 2)]
    print_table(rows, title="numbers")
    out = capsys.readouterr().out
    assert [line.split()[1::2] for line in out.splitlines() if line.startswith("┃")] == [
        ["name", "column-1", "column-2"],
        ["name", "column-3", "column-4"],
        ["name", "column-5"],
    ]
    assert out.count("row-1") == out.count("row-2") == 3
    assert words_of(rows) <= set(out.split())


def test_room_goes_to_the_column_with_the_most_lines(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "50")
    print_table([{"world": "sprites", "note": "word " * 15}], title="worlds")
    out = capsys.readouterr().out
    assert {len(line) for line in out.splitlines()[1:]} == {50}
    assert out.count("│") == 3 * 3  # 75 characters of notes in lines of 36


def test_columns_without_a_value_are_left_out(capsys):
    print_table([{"a": None, "b": None, "c": 0}, {"a": None, "b": "", "c": None}], title="mostly nothing")
    assert capsys.readouterr().out.splitlines()[2].split() == ["┃", "a", "┃", "c", "┃"]


def test_a_path_may_be_broken_for_the_other_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    rows = [{"file": "train-images-idx3-ubyte.gz", "state": "missing", "path": "/" + "deep/" * 20}]
    print_table(rows, title="files")
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) == 80
    assert {"train-images-idx3-ubyte.gz", "missing"} <= set(out.split())
    assert "".join(out.replace("│", "").split()).count("deep/") >= 15


@pytest.mark.parametrize("width", WIDTHS)
def test_sentences_are_broken_between_words(monkeypatch, capsys, width):
    text = f"{inspected().summary()}\n"
    monkeypatch.setenv("COLUMNS", str(width))
    print_words(text)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(lines).split() == text.split()


def test_sentences_stay_whole_where_nobody_says_how_wide_they_may_be(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    print_words("word " * 100)
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_long_work_is_announced_without_a_terminal(capsys):
    with working("scoring", seconds=0.01):
        time.sleep(0.2)
    assert capsys.readouterr().err.startswith("scoring: 0 s so far\n")
    with working("scoring", seconds=30):
        pass
    assert capsys.readouterr().err == ""


def test_columns_are_counted_once_in_so_many_seconds(capsys, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("unseam.cli.printing.time", SimpleNamespace(monotonic=lambda: now[0]))
    report = count_columns(5.0)
    for second in range(13):
        now[0] = 1000.0 + second
        report(second, 64)
    said = capsys.readouterr().err.splitlines()
    assert said == ["5 of 64 columns of the Jacobian", "10 of 64 columns of the Jacobian"]


def test_a_terminal_hears_of_work_after_a_second(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with working("scoring", seconds=30):
        time.sleep(1.2)
    assert capsys.readouterr().err == "scoring: 1 s so far\n"
