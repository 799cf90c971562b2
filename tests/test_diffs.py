"""Promise: the diff between two stages is the lesson, and nothing else."""

import ast
import subprocess

import pytest

from conftest import ROOT
from tools.diffs import changed_lines
from tools.stages import STAGES, script

BUDGETS = {
    ("01_cpu", "02_single_gpu"): 6,
    ("02_single_gpu", "03_dp"): 8,
    ("03_dp", "04_ddp"): 40,
    ("04_ddp", "05_ddp_inference"): 20,
    ("05_ddp_inference", "06_model_parallel"): 60,
    ("02_single_gpu", "06_model_parallel"): 18,
}
LINES, COLUMNS = 141, 88  # 135, and 6 for --resume
SECTIONS = ["MNIST", "Net", "train_epoch", "evaluate", "main", "parse_args"]
CHANGES = {  # the sections that a diff may touch
    ("01_cpu", "02_single_gpu"): {"train_epoch", "evaluate", "main"},
    ("02_single_gpu", "03_dp"): {"main"},
    ("03_dp", "04_ddp"): {"train_epoch", "main"},
    ("04_ddp", "05_ddp_inference"): {"evaluate", "main", "parse_args"},
    ("02_single_gpu", "06_model_parallel"): {"Net", "main"},
}


def sections(stage):
    """Return the source of each function and class of a stage, by name."""
    source = script(stage).read_text()
    kinds = ast.FunctionDef, ast.ClassDef
    nodes = [node for node in ast.parse(source).body if isinstance(node, kinds)]
    lines = source.splitlines()
    found = {}
    for node in nodes:
        start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        found[node.name] = "\n".join(lines[start - 1 : node.end_lineno])
    return found


@pytest.mark.parametrize("pair", BUDGETS, ids="->".join)
def test_budget_of_changed_lines(pair):
    result = subprocess.run(
        ["diff", *map(script, pair)], capture_output=True, text=True
    )
    marked = [line for line in result.stdout.splitlines() if line[:1] in "<>"]
    assert 0 < len(marked) <= BUDGETS[pair]
    assert changed_lines(*pair) == len(marked)  # what we show is what diff counts


@pytest.mark.parametrize("stage", STAGES)
def test_length_of_a_script(stage):
    lines = script(stage).read_text().splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS


@pytest.mark.parametrize("stage", STAGES)
def test_sections_in_order(stage):
    source = script(stage).read_text()
    body = ast.parse(source).body
    assert ast.get_docstring(ast.parse(source))
    assert list(sections(stage)) == SECTIONS
    imports = (ast.Import, ast.ImportFrom)
    kinds = [isinstance(node, imports) for node in body[1:]]
    assert kinds == sorted(kinds, reverse=True)  # all imports before the rest
    assert isinstance(body[-1], ast.If)
    modules = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name)
        for node in body
        if isinstance(node, imports)
    }
    ours = {path.stem for path in (ROOT / "tools").glob("*.py")} | {"tools", "tests"}
    assert not {name.split(".")[0] for name in modules} & ours  # self-contained


def test_shared_sections_are_equal():
    compared = 0
    for (a, b), allowed in CHANGES.items():
        old, new = sections(a), sections(b)
        differing = {name for name in SECTIONS if old[name] != new[name]}
        assert differing == allowed, (a, b)
        compared += len(SECTIONS)
    assert compared == 30


def test_docstrings_are_equal():
    docstrings = {ast.get_docstring(ast.parse(script(s).read_text())) for s in STAGES}
    assert len(docstrings) == 1
