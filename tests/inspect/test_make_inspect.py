"""Promise: make inspect finds the bugs in the exercises, as its page says."""

import csv
import re

import pytest

from conftest import ROOT, call
from onecurve import api
from tools.lab.exercise import along_the_path

DATA = "--data", ROOT / "data/sample"
PAGE = " ".join((ROOT / "beyond/own_script/INSPECT.md").read_text().split())
INSPECTED = "04_ddp", "05_ddp_inference", "07_fsdp", "11_resume"
EXERCISES = {one.number: one for one in along_the_path() if one.stage in INSPECTED}
RATE = re.search(r"(\d+ of \d+) are found on two ranks; not ([^;]+) of which 18", PAGE)
NOT_FOUND = re.findall(r"\d+", RATE[2])
HIDDEN_ON_TWO_RANKS = "12", "22"
FAILS = """import os, sys, time
time.sleep(60 * int(os.environ["RANK"]))  # rank 0 fails first and ends all
raise ValueError(sys.argv[1])
"""


def test_the_page_counts_the_exercises_that_are_found():
    assert set(NOT_FOUND) <= set(EXERCISES)
    found = len(EXERCISES) - len(NOT_FOUND)
    assert RATE[1] == f"{found} of {len(EXERCISES)}"


def has_error(path, flags, ranks, folder):
    """Return whether the inspector reports an error in a script."""
    inspection = api.inspect((path, [*DATA, *flags], ranks), folder)
    return inspection.status == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", EXERCISES)
def test_an_exercise_is_found_as_the_page_says(number, tmp_path):
    path = tmp_path / "mnist.py"
    path.write_text(EXERCISES[number].script("start"))
    assert has_error(path, [], 2, tmp_path / "two") == (number not in NOT_FOUND)
    if number in HIDDEN_ON_TWO_RANKS:
        assert has_error(path, ["--batch-size", 129], 3, tmp_path / "three")


def test_a_script_that_fails_says_so(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(FAILS)
    result = call(["make", "inspect", f"SCRIPT={path}", "NPROC=3", "ARGS=seven"])
    assert result.returncode == 2, result.stderr
    assert result.stdout.startswith("1 error in train.py\n3 CPU ranks: no step")
    assert "ERROR  rank 0 failed: ValueError: seven" in result.stdout
    assert "train.py:3" in result.stdout
    assert "see 04_ddp/HANGS.md" in result.stdout


def test_each_finding_is_explained_on_pages_that_there_are():
    with open(ROOT / "tools/run/explained.csv", newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    assert list(rows) == list(api.TABLE)
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
