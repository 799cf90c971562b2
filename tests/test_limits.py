"""Promise: make lint reports files that outgrow their limits."""

import subprocess
from contextlib import suppress

import pytest

from conftest import ROOT
from tools import limits

LIMITS = """
[lines]
"Python" = { most = 250, files = "tools/*.py", but = "tools/other/*" }
["modules over 250 lines"]
"all" = { most = 0, files = "*.py" }
["functions over 45 lines"]
"all" = { most = 0, files = "*.py" }
"""


def test_a_module_that_grows_by_a_line_is_over_three_limits(tmp_path, capsys):
    path = tmp_path / "tools/long.py"
    path.parent.mkdir()
    module = ["def f():", *["    print()"] * 44, *["print()"] * 205]
    path.write_text("\n".join(module))
    (tmp_path / "tools/limits.toml").write_text(LIMITS)
    for words in ["init", "-q"], ["add", "."]:
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    limits.main(tmp_path)
    assert capsys.readouterr().out == ""
    path.write_text(path.read_text().replace("def f():", "def f():\n    print()"))
    with pytest.raises(SystemExit):
        limits.main(tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        "Python: 251 lines, limit 250",
        "all: 1 modules over 250 lines, limit 0",
        "all: 1 functions over 45 lines, limit 0",
    ]


def test_every_python_file_has_a_limit(capsys):
    with suppress(SystemExit):  # make lint reports these
        limits.main(ROOT, ["--all"])
    counted = [row for row in capsys.readouterr().out.splitlines() if "lines" in row]
    assert len(counted) > 10
