"""Promise: tests and tools import only the inspector's interface."""

import re

from conftest import ROOT


def test_tests_import_of_the_inspector_its_interface_alone():
    """make lint checks the tools."""
    for path in (ROOT / "tests").rglob("*.py"):
        for line in path.read_text().splitlines():
            if re.match(r" *(from|import) onecurve", line):
                words = line.strip()
                assert words == "from onecurve import api", f"{path}: {words}"
