"""Promise: rooms import one way only, and importing a module changes nothing else."""

import re

import pytest

from conftest import ENV, ROOT, call

ROOMS = ["pages", "bench", "lab", "inspect", "watch", "run"]
PROGRAMS = ["tools.run.probe"]  # at work as soon as imported
UNCHANGED = """
import importlib, os, signal, sys
import matplotlib.pyplot, torch, torchvision  # what these change is their own affair
from IPython import get_ipython

def state():
    signals = {one: signal.getsignal(one) for one in signal.valid_signals()}
    settings = dict(matplotlib.rcParams)
    path = [folder for folder in sys.path if "site-packages" not in folder]
    return signals, dict(os.environ), settings, os.getcwd(), path, sys.argv[:]

for name in sys.argv[1:]:
    before = state()
    importlib.import_module(name)
    for one, other in zip(before, state()):
        assert one == other, f"{name} changed {one} to {other}"
print(len(sys.argv[1:]))
"""


def modules(room):
    """Return the names of a room's modules and packages, such as stages."""
    folder = ROOT / "tools" / room
    packages = [path.parent for path in folder.glob("*/__init__.py")]
    return sorted(path.stem for path in [*folder.glob("[!_]*.py"), *packages])


def test_imports_go_one_way():
    result = call([".venv/bin/lint-imports", "--no-cache"], cwd=ROOT)
    assert result.returncode == 0, result.stdout
    assert "Contracts: 1 kept, 0 broken." in result.stdout


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_is_in_it(room):
    text = (ROOT / "tools" / room / "__init__.py").read_text()
    assert set(modules(room)) - set(re.findall(r"\w+", text)) == set()


def test_an_import_changes_nothing():
    names = [f"tools.{room}.{name}" for room in ROOMS for name in modules(room)]
    imported = [name for name in names if name not in PROGRAMS]
    assert len(imported) > 30
    result = call(
        [".venv/bin/python", "-c", UNCHANGED, *imported],
        env={**ENV, "MPLBACKEND": "agg"},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{len(imported)}\n"
