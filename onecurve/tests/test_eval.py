"""Promise: every known bug can be put into its script, and a stale table is named."""

import shutil
import subprocess
import sys
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[1]


def run(house, *words):
    """Run a command of a house's eval/; return what subprocess.run does."""
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=house, capture_output=True, text=True)


def test_each_edit_applies_and_compiles():
    checked = run(HOUSE, "eval/rate.py", "--check")
    assert checked.returncode == 0, checked.stderr


def test_a_stale_table_is_named(tmp_path):
    for name in "README.md", "RULES.md", "PUBLIC.md", "eval", "src":
        copy = shutil.copytree if (HOUSE / name).is_dir() else shutil.copy
        copy(HOUSE / name, tmp_path / name)
    assert run(tmp_path, "eval/pages.py", "--check").stdout == ""
    table = tmp_path / "eval/grades.csv"
    table.write_text(table.read_text().replace(",missed,", ",right,"))
    checked = run(tmp_path, "eval/pages.py", "--check")
    assert "README.md: rates was stale" in checked.stdout
    assert checked.returncode == 1
