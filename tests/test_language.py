"""Names, docstrings, messages and pages use the words of the field."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
READ = [
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "src").rglob("*.html"),
    *(ROOT / "src").rglob("*.js"),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "benchmarks").glob("*.py"),
    *(ROOT / "benchmarks").glob("*.md"),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]
THING = "(row|dot|line|colour|column|panel|curve|bar|point|thread|block|value|mark)"
WHOLE = "(model|member|seed|latent|factor|item|pixel|world|metric|point|row|hour|second|minute|step|update|batch|layer)"
DIALECT = {
    "active or collapsed latents": r"\bwho (lives|is alive)\b|\b(live|dead) latents?\b|\blatents? (live|lives)\b",
    "rotated": r"\bturned (models?|decoders?|latents?|axes|basis)\b|\bturns? of the latents\b",
    "converged": r"\b(come|came|comes) to rest\b|\bat rest\b|\bhas settled\b",
    "again": r"\banew\b",
    "predicts, predicted": r"(?<!\.)\bforet(ell|old|ells)\b",
    "per": rf"\b(a|one) {THING} an? {WHOLE}\b|\b(nats|models|items|bits|seconds) an? {WHOLE}\b",
    "fraction of chance": r"\bpart of chance\b",
    "unused by": r"\bof no account\b",
    "significantly": r"\bsurely\b",
    "not orthogonal, partly collapsed": r"\bcrooked|\brestless\b",
    "a name that is a verb or a quantity": r"\bdef _?(told|said|kept|beside|apart|followed|called)\(",
}


@pytest.mark.parametrize(("words", "pattern"), DIALECT.items(), ids=DIALECT)
def test_no_word_of_dialect(words, pattern):
    """A failure names the file and line, and the parameter says what to write instead."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in READ
        for number, line in enumerate(path.read_text("utf8").splitlines(), 1)
        if re.search(pattern, line, re.IGNORECASE)
    ]
    assert not found, f"write: {words}\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "Who lives at β = 4",
        "one row a model",
        "12 nats an item",
        "models that came to rest",
        "def told(",
        "dead latents",
    ],
)
def test_the_check_sees(line):
    assert any(re.search(pattern, line, re.IGNORECASE) for pattern in DIALECT.values())
