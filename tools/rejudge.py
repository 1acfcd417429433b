"""Show that findings derived from the committed tables equal those stored with them."""

import math
import sys
from pathlib import Path

from unseam.papers import artefacts, load_result, results_folder


def main(words):
    """Compare every committed result, or those whose artefact's key starts with one of ``words``."""
    equal = total = 0
    for path in sorted(results_folder().glob("*/*.json")):
        stored = load_result(path)
        if words and not stored.key.startswith(tuple(words)):
            continue
        artefact = artefacts()[stored.key]
        try:
            derived = artefact.judge(stored.outcome.tables)
        except Exception as error:
            print(f"{path.stem}: {type(error).__name__}: {error}")
            total += len(stored.outcome.findings)
            continue
        pairs = list(zip(stored.outcome.findings, derived.findings, strict=False))
        same = sum(alike(one, other) for one, other in pairs)
        equal, total = equal + same, total + max(len(stored.outcome.findings), len(derived.findings))
        print(
            f"{Path(path).parent.name}.{path.stem}: {same} of {len(stored.outcome.findings)} equal, {len(derived.findings)} derived"
        )
        for one, other in pairs:
            if not alike(one, other):
                print(f"    stored  {one}\n    derived {other}")
        if stored.outcome.note != derived.note:
            print(f"    note: stored  {stored.outcome.note}\n    note: derived {derived.note}")
    print(f"{equal} of {total} findings equal")


def alike(one, other):
    """Whether two findings are the same up to the six digits that tables keep."""
    words = (
        one.quantity == other.quantity and one.published == other.published and one.verdict == other.verdict
    )
    numbers = zip(one[2:5], other[2:5], strict=True)
    return words and all(near(a, b) for a, b in numbers)


def near(a, b):
    if a is None or b is None:
        return a is None and (b is None or not math.isfinite(b))
    return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-9)


if __name__ == "__main__":
    main(sys.argv[1:])
