"""Promise: a room says what is in it. What it imports is looked at by make lint."""

import re

import pytest

from conftest import ROOT

ROOMS = ["tools/pages", "tools/bench", "tools/lab", "tools/run"]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_is_in_it(room):
    """A module begins a line, or is in backticks in that of another."""
    folder = ROOT / room
    packages = [path.parent for path in folder.glob("*/__init__.py")]
    modules = {path.stem for path in [*folder.glob("[!_]*.py"), *packages]}
    assert len(modules) > 1
    text = (folder / "__init__.py").read_text()
    listed = set(re.findall(r"(?m)^(\w+)  ", text)) - {"__main__"}
    assert listed - modules == set()
    assert modules - listed - set(re.findall(r"`(\w+)`", text)) == set()


def test_tests_import_of_the_inspector_its_interface_alone():
    """For the tools, make lint sees to it."""
    for path in (ROOT / "tests").rglob("*.py"):
        for line in path.read_text().splitlines():
            if re.match(r" *(from|import) onecurve", line):
                words = line.strip()
                assert words == "from onecurve import api", f"{path}: {words}"
