"""Promise: make lint notices what has outgrown its limit, and what has none."""

import subprocess

import pytest

from conftest import ROOT
from tools import limits


@pytest.fixture
def checkout(tmp_path):
    """Return a checkout with one module of 250 lines, at its limits."""
    (tmp_path / "tools").mkdir()
    module = ["def f():", *["    print()"] * 44, *["print()"] * 205]
    (tmp_path / "tools/long.py").write_text("\n".join(module))
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    rows = [f'"{name}" = {most}\n' for name, most in limits.measure(tmp_path).items()]
    (tmp_path / "tools/limits.toml").write_text("".join(rows))
    return tmp_path


def test_a_module_that_grows_by_a_line_is_over_three_limits(checkout, capsys):
    limits.main(checkout)
    assert capsys.readouterr().out == ""
    path = checkout / "tools/long.py"
    path.write_text(path.read_text().replace("def f():", "def f():\n    print()"))
    with pytest.raises(SystemExit):
        limits.main(checkout)
    assert capsys.readouterr().out.splitlines() == [
        "Python in tools: 251, limit 250",
        "modules over 250 lines: 1, limit 0",
        "functions over 45 lines: 1, limit 0",
    ]


def test_each_figure_needs_a_limit(checkout):
    path = checkout / "tools/limits.toml"
    path.write_text(path.read_text().replace('"patches" = 0\n', ""))
    with pytest.raises(SystemExit, match="differ: patches$"):
        limits.main(checkout)


def test_every_file_counts_once():
    """What becomes data does not get lost. Left out are pictures, pins and shell."""
    counted = []
    for patterns in [*limits.LINES.values(), *limits.BYTES.values()]:
        counted += limits.files(ROOT, patterns)
    apart = "*.svg *.png *.sh tools/requirements/* onecurve/*.toml"
    for path in limits.files(ROOT, f"tools/* tests/* onecurve/* but {apart}"):
        assert counted.count(path) == 1, path
