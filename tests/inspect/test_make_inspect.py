"""Promise: make inspect runs the inspector and links its findings to the pages."""

import csv

import pytest

from conftest import ROOT, call
from onecurve import api

FAILS = """import os, sys, time
time.sleep(60 * int(os.environ["RANK"]))  # rank 0 fails first and ends all
raise ValueError(sys.argv[1])
"""


def test_a_script_that_fails_says_so(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(FAILS)
    result = call(["make", "inspect", f"SCRIPT={path}", "NPROC=3", "ARGS=seven"])
    assert result.returncode == 2, result.stderr
    told = "train.py:3: rank 0 failed: ValueError: seven,\n  and one process fails"
    assert result.stdout.startswith(f"train.py COULD NOT BE INSPECTED: {told}")


def test_each_finding_is_explained_on_pages_that_there_are():
    with open(ROOT / "tools/run/explained.csv", newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert set(rows) <= set(api.RULES)  # RULES.md explains the others
    for row in rows.values():
        assert (ROOT / row["page"]).is_file(), row
        assert not row["exercise"] or (ROOT / row["exercise"]).is_file(), row


@pytest.mark.parametrize("words", [[], ["SCRIPT=nix.py"], ["SCRIPT=a.py", "NPROC=1"]])
def test_a_users_mistake_is_refused_in_one_line(words, tmp_path):
    result = call(["make", "inspect", *words])
    assert result.returncode == 2
    (line, _) = result.stderr.splitlines()  # the second line is make's
    assert any(told in line for told in ("SCRIPT=train.py", "nix.py", "2 or more"))
    assert result.stdout == ""
