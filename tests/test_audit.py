"""What make audit says of a report of pip-audit."""

import importlib.util
import sys

import pytest

CLEAN = {"name": "one", "version": "1.0", "vulns": []}
FLAWED = {"name": "two", "version": "2.0", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}]}
ABSENT = {"name": "three", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("found", "said", "status"),
    [
        ([CLEAN], ["all: 0 known vulnerabilities in 1 versions"], 0),
        ([CLEAN, FLAWED], ["two 2.0: CVE-1, fixed in 2.1", "all: 1 known vulnerabilities in 2 versions"], 1),
        ([CLEAN, ABSENT], ["all: 0 known vulnerabilities in 1 versions; not looked up: three"], 2),
        ([ABSENT], ["all: not audited, since the data on vulnerabilities could not be reached"], 2),
    ],
)
def test_what_is_said(root, monkeypatch, found, said, status):
    """Versions that could not be looked up are never counted as sound."""
    monkeypatch.syspath_prepend(str(root / "tools"))
    spec = importlib.util.spec_from_file_location("audit_tool", root / "tools" / "audit.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.delitem(sys.modules, "floors")
    assert tool.judge("all", found) == (said, status)
