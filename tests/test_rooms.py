"""Promise: rooms import one way only, and importing a module changes nothing else."""

import re
from itertools import combinations

from conftest import ENV, ROOT, call
from tools.pages import rooms

PROGRAMS = ["tools.run.probe", "tools.bench.peers"]  # at work as soon as imported
UNCHANGED = """
import importlib, os, signal, sys
import matplotlib.pyplot, torch, torchvision  # what these change is their own affair
from IPython import get_ipython

def state():
    signals = {one: signal.getsignal(one) for one in signal.valid_signals()}
    settings, words = dict(matplotlib.rcParams), sys.argv[:]
    path = [folder for folder in sys.path if "site-packages" not in folder]
    return signals, dict(os.environ), settings, os.getcwd(), path, words

for name in sys.argv[1:]:
    before = state()
    importlib.import_module(name)
    for one, other in zip(before, state()):
        assert one == other, f"{name} changed {one} to {other}"
print(len(sys.argv[1:]))
"""


def names():
    """Return the names of all modules of tools/, such as tools.run.stages."""
    return [f"tools.{room}.{path.stem}"
            for room in rooms.ROOMS for path in rooms.modules(room)]  # fmt: skip


def test_imports_go_one_way():
    folders = {path.parent.name for path in (ROOT / "tools").glob("*/__init__.py")}
    assert folders == set(rooms.ROOMS)
    assert rooms.arrows() <= set(combinations(rooms.ROOMS, 2))
    for room in rooms.ROOMS:
        for path in rooms.modules(room):
            outside = {name.split(".")[0] for name in rooms.imported(path)}
            assert not outside & {"tests", "conftest", *rooms.ROOMS}, path


def test_imports_are_found(tmp_path):
    path = tmp_path / "run" / "module.py"
    path.parent.mkdir()
    path.write_text(
        "import tools.lab.checks, torch\nfrom tools import bench\n"
        "def function():\n    from ..pages import blocks\n    from . import data\n"
    )
    assert rooms.imported(path) == {
        "tools.lab.checks", "torch", "tools.bench", "tools.pages.blocks",
        "tools.run.data",
    }  # fmt: skip


def test_a_room_says_what_is_in_it():
    for room in rooms.ROOMS:
        text = (ROOT / "tools" / room / "__init__.py").read_text()
        said = set(re.findall(r"\w+", text))
        assert [p.stem for p in rooms.modules(room) if p.stem not in said] == [], room


def test_an_import_changes_nothing():
    imported = [name for name in names() if name not in PROGRAMS]
    assert len(imported) == len(names()) - len(PROGRAMS) > 0
    result = call(
        [".venv/bin/python", "-c", UNCHANGED, *imported],
        env={**ENV, "MPLBACKEND": "agg"},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"{len(imported)}\n"
