"""Promise: every known bug applies to its script, and stale tables are reported."""

import shutil
import sys

from conftest import PROJECT, call


def run(folder, *words):
    """Run a command of eval/ in a folder; return a CompletedProcess."""
    return call([sys.executable, *words], cwd=folder)


def test_each_edit_applies_and_compiles():
    checked = run(PROJECT, "eval/rate.py", "--check")
    assert checked.returncode == 0, checked.stderr


def test_a_stale_table_is_named(tmp_path):
    for name in "README.md", "RULES.md", "PUBLIC.md":
        shutil.copy(PROJECT / name, tmp_path)
    unused = shutil.ignore_patterns("cases", "*.pyc")
    for name in "eval", "src":
        shutil.copytree(PROJECT / name, tmp_path / name, ignore=unused)
    assert run(tmp_path, "eval/pages.py", "--check").stdout == ""
    table = tmp_path / "eval/grades.csv"
    table.write_text(table.read_text().replace(",missed,", ",right,"))
    checked = run(tmp_path, "eval/pages.py", "--check")
    assert "README.md: rates was stale" in checked.stdout
    assert checked.returncode == 1
