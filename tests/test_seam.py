"""Promise: of the inspector, the tests import its interface alone; so do the tools."""

import re

from conftest import ROOT


def test_tests_import_of_the_inspector_its_interface_alone():
    """For the tools, make lint sees to it."""
    for path in (ROOT / "tests").rglob("*.py"):
        for line in path.read_text().splitlines():
            if re.match(r" *(from|import) onecurve", line):
                words = line.strip()
                assert words == "from onecurve import api", f"{path}: {words}"
