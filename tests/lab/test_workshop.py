"""Promise: a workshop's tracks, timetable and screens fit the exercises."""

import csv
import os
import re
import shutil

import pytest

from conftest import ENV, ROOT, call
from tools.lab import progress
from tools.lab.exercise import along_the_path, find_exercise
from tools.lab.progress import TRACKS, along_the_track, choose_track, workshop

PAGE = (ROOT / "exercises/WORKSHOP.md").read_text()
TABLES = {
    "two_hours": ["Two hours"],
    "half_day": ["Half a day"],
    "day": ["Half a day", "A full day"],
    "transformer": ["A second morning: a transformer in parts"],
}
LAST = {"two_hours": "2:00", "half_day": "4:00", "day": "3:45", "transformer": "3:25"}
SPARE = {"two_hours": 1, "half_day": 2, "day": 2, "transformer": 1}
NAME = re.compile(r"`(\d\d_\w+)`")


def names(track, spare):
    """Return the names of a track's exercises, either spare or regular ones."""
    with open(TRACKS, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["track"] == track]
    return [row["exercise"] for row in rows if row["spare"] == spare]


def table(title):
    """Return the rows of a chapter's table as lists of cells."""
    chapter = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in chapter.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


@pytest.mark.parametrize("track", TABLES)
def test_an_exercise_comes_after_those_it_builds_on(track):
    exercises = along_the_track(track)
    before = set()
    if track == "transformer":  # its learners know parts 1 to 4
        before |= {one.number for one in along_the_path() if one.part < 5}
    for exercise in exercises:
        assert before.issuperset(exercise.after), exercise.name
        before.add(exercise.number)
    assert names(track, "") + names(track, "spare") == [one.name for one in exercises]
    assert len(names(track, "spare")) == SPARE[track]


@pytest.mark.parametrize("track", TABLES)
def test_a_timetable_has_the_track_and_its_minutes_add_up(track):
    shown = []
    for title in TABLES[track]:
        now = 0
        *rows, last = table(title)
        for time, minutes, what, _ in rows:
            assert time == f"{now // 60}:{now % 60:02}"
            found = NAME.findall(what)
            if found:
                assert sum(find_exercise(one).minutes for one in found) == int(minutes)
            shown += found
            now += int(minutes)
        assert last[:3] == [f"{now // 60}:{now % 60:02}", "", "End"]
    assert last[0] == LAST[track]
    assert shown == names(track, "")
    for spare in names(track, "spare"):
        assert f"`{spare}`" in PAGE


def test_each_screen_is_a_change_that_its_stage_s_page_explains():
    screens = table("Twelve screens")
    assert [row[0] for row in screens] == [str(number) for number in range(1, 13)]
    for _, screen, ask, answer in screens[1:]:
        idea = re.fullmatch(r"`#((\w+)\.\d+)`", screen)
        assert f'<a id="{idea[1]}">' in (ROOT / idea[2] / "README.md").read_text()
        assert ask and answer


def test_a_track_leads_to_its_next_exercise(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKSHOP", str(tmp_path))

    def act(*words):
        return call(["make", *words], env=os.environ)

    for name in names("half_day", "")[:4]:
        exercise = find_exercise(name)
        workshop(exercise).mkdir()
        (workshop(exercise) / ".done").touch()
    following = find_exercise(names("half_day", "")[4])
    assert act("exercise", "TRACK=half_day").stdout.startswith(following.title)
    after = find_exercise(names("half_day", "")[5])
    (workshop(following) / ".done").touch()
    told = act("exercises").stdout
    assert f"\nNext: make exercise E={after.number}\n" in told  # in the track
    refused = act("exercise", "TRACK=week")
    assert refused.stderr.startswith("there is no track 'week'. Try: TRACK=")
    assert act("exercises").stdout == told  # the track is unchanged


def test_after_a_track_the_others_remain(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKSHOP", str(tmp_path))
    for track, said in (
        ("half_day", "Track half_day is solved. Next: make exercise TRACK=all"),
        ("all", "All exercises are solved."),
    ):
        choose_track(track)
        for exercise in along_the_track(track):
            workshop(exercise).mkdir(exist_ok=True)
            (workshop(exercise) / ".done").touch()
        assert progress.next_step() == said


def test_who_can_install_nothing_has_a_line_for_the_instructor(tmp_path):
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    shutil.copy(ROOT / "Makefile", tmp_path)
    words = ["make", "doctor", "PYTHON=false"]
    result = call(words, cwd=tmp_path, env=ENV)
    assert result.returncode != 0
    assert result.stdout.endswith(": not ready: stopped before the checks\n")
    assert result.stderr.startswith("false is not Python 3.10 or newer: make PYTHON=")
