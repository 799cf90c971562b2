"""Promise: a workshop's tracks, timetable, screens and papers fit the exercises."""

import csv
import html
import os
import re
import shutil

import pytest

from conftest import ENV, ROOT, call
from tools.lab import progress
from tools.lab.exercise import along_the_path, find_exercise
from tools.lab.progress import TRACKS, along_the_track, choose_track, workshop
from tools.pages import handouts

PAGE = (ROOT / "exercises/WORKSHOP.md").read_text()
TABLES = {
    "half_day": ["Half a day"],
    "day": ["Half a day", "A full day"],
    "transformer": ["A second morning: a transformer in parts"],
}
LAST = {"half_day": "4:00", "day": "3:45", "transformer": "3:25"}
SPARE = {"half_day": 2, "day": 2, "transformer": 1}
NAME = re.compile(r"`(\d\d_\w+)`")


def names(track, spare):
    """Return the names of a track's exercises: the spare ones, or the others."""
    with open(TRACKS, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["track"] == track]
    return [row["exercise"] for row in rows if row["spare"] == spare]


def table(title):
    """Return the rows of a chapter's table: a list of cells for each."""
    chapter = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in chapter.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


@pytest.mark.parametrize("track", TABLES)
def test_an_exercise_comes_after_those_it_builds_on(track):
    exercises = along_the_track(track)
    before = set()
    if track == "transformer":  # for those who know the four parts before it
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
        idea = re.fullmatch(r"`#slides=((\w+)\.\d+)`", screen)
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
    told = act("exercises", "WHO=Ada").stdout
    assert told.endswith(f", next: {after.number}\n")  # by the track, not by the path
    assert f"\nNext: make exercise E={after.number}\n" in told
    refused = act("exercise", "TRACK=week")
    assert refused.stderr.startswith("there is no track 'week': TRACK is one of ")
    assert act("exercises", "WHO=Ada").stdout == told  # the track is what it was


def test_after_a_track_the_others_remain(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKSHOP", str(tmp_path))
    for track, said in (
        ("half_day", "All of half_day are solved. Next: make exercise TRACK=all"),
        ("all", "All are solved."),
    ):
        choose_track(track)
        for exercise in along_the_track(track):
            workshop(exercise).mkdir(exist_ok=True)
            (workshop(exercise) / ".done").touch()
        assert progress.next_step() == said


# Exercises of 5, 10 and 10 minutes.
EASY = find_exercise("01_stays_behind").number
TIMING = find_exercise("02_impossibly_fast").number
SAMPLER = find_exercise("04_nothing_gained").number
ROOM = f"""\
11:20 Ada: ready | Linux x86_64 | Python 3.12.3 | torch 2.15.0 | cores 4
11:21 Bob: not ready: no .venv
11:22 Eve: ready | Linux x86_64 | Python 3.12.3 | torch 2.15.0 | cores 4
11:23 <i>Al</i>: not ready: disk
11:24 Eve: not ready: PyTorch 2.3.1 | Linux x86_64 | Python 3.12.3 | cores 4
11:25 Bob: ready | Linux x86_64 | Python 3.12.3 | torch 2.15.0 | cores 4
12:50 <i>Al</i>: 0 of 34 solved, begun: {SAMPLER}
12:52 From Ada to everyone:
    Ada: 2 of 34 solved ({EASY} {TIMING}), begun: {SAMPLER}
how do I begin?
[12:58] Cy: 1 of 34 solved ({EASY}), next: {TIMING}
[12:59] Ada: 2 of 34 solved ({EASY} {TIMING}), begun: {SAMPLER}
12:95 **ada**: 2 of 34 solved ({EASY} {TIMING}), begun: {SAMPLER}
First L: ready
1:02 Cy: see you at 1:30
"""


def test_a_room_says_who_is_ready_and_who_is_at_what_since_when(tmp_path):
    path = tmp_path / "chat.txt"
    roster = tmp_path / "names.txt"
    roster.write_text("Ada\nBob\nJo Ó\n", "latin-1")
    words = ["make", "room", f"FROM={path}", f"OUT={tmp_path}", f"ROSTER={roster}"]
    for encoding in "utf-16", "latin-1":
        path.write_text(ROOM, encoding)
        *told, page = call(words).stdout.splitlines()
        assert told == [
            "2 ready; Eve: PyTorch 2.3.1; <i>Al</i>: disk",
            "silent: Jo_Ó",
            f"{EASY}   2 solved",
            f"{TIMING}   1 solved  Cy (4 min)",
            f"{SAMPLER}   0 solved  Ada (10 min), <i>Al</i> (stuck for 12 min)",
        ]
    assert page == (tmp_path / "room.html").as_uri()
    shown = (tmp_path / "room.html").read_text()
    assert 'http-equiv="refresh"' in shown
    assert all(html.escape(line) in shown for line in told)
    path.write_text("nobody\n")
    for name, said in (path, "no line is the last"), (tmp_path / "no.txt", "No such"):
        result = call(["make", "room", f"FROM={name}"])
        assert said in result.stderr.splitlines()[0]


def test_who_can_install_nothing_has_a_line_for_the_instructor(tmp_path):
    for name in "tools/run", "tools/requirements":
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "Makefile", tmp_path)
    words = ["make", "doctor", "WHO=Bob B", "PYTHON=false"]
    result = call(words, cwd=tmp_path, env=ENV)
    assert result.returncode != 0
    assert result.stdout == "Bob_B: not ready: no .venv\n"
    assert result.stderr.startswith("false is not Python 3.10 or newer: make PYTHON=")


def test_handouts_have_the_track_s_sheets_and_answers(tmp_path):
    call(["make", "handouts", f"OUT={tmp_path}"])
    exercises = along_the_track("half_day")
    sheets = (tmp_path / "handouts_half_day.html").read_text()
    answers = (tmp_path / "answers_half_day.html").read_text()
    assert re.findall(r"<h1>(\d\d)\. ", sheets) == [one.number for one in exercises]
    assert sheets.count("Your task</h2>") == len(exercises)
    assert "Hint" not in sheets
    hanging = find_exercise("19_hangs_after_epoch").script("start").splitlines()
    (barrier,) = [line for line in hanging if "dist.barrier()" in line]
    assert f"\n{hanging.index(barrier) + 1:3}  {barrier}" in sheets
    own = "\n".join(handouts.functions_that_matter(find_exercise("23")))
    assert "BatchNorm1d" in own and "parse_args" not in own  # that is the stage's
    assert re.findall(r"<h2>(\d\d)\. ", answers) == [one.number for one in exercises]
    assert "+    dist.all_reduce(totals)" in answers
    assert "Step 1 takes 128 images on all ranks together, expected 64" in answers
