"""How far a learner is, and how far a room of learners is."""

import os
import platform
import re
import sys
from collections import Counter
from pathlib import Path

from tools.lab.exercise import PARTS, along_the_path
from tools.run.stages import ROOT, refuse

WHICH = "which exercise? E=04, say; 'make exercises' lists them"
# a line of `progress`, with whatever a chat has put in front of it
LINE = re.compile(r"(\S+): \d+ of \d+ solved(?: \(([\d ]+)\))?(?:, begun: ([\d ]+))?")


def workshop(exercise):
    """Return the learner's folder for an exercise, in workshop/ or $WORKSHOP."""
    folder = Path(os.environ.get("WORKSHOP") or ROOT / "workshop")
    return folder / exercise.name


def own_script(exercise):
    """Return the path of the learner's script; refuses where there is none yet."""
    path = workshop(exercise) / "mnist.py"
    if not path.exists():
        number = exercise.number
        refuse(f"exercise {number} has not begun: 'make exercise E={number}'")
    return path


def state(exercise):
    """Return `done`, `begun` or nothing."""
    folder = workshop(exercise)
    if (folder / ".done").exists():
        return "done"
    return "begun" if folder.exists() else ""


def last_begun():
    """Return the exercise that was begun last; refuses where none is begun."""
    times = {}
    for exercise in along_the_path():
        page = workshop(exercise) / "README.md"
        if page.exists():
            times[page.stat().st_mtime] = exercise
    if not times:
        refuse(WHICH)
    return times[max(times)]


def first_on_path(wanted):
    """Return the first exercise of a state on the path, or None."""
    for exercise in along_the_path():
        if state(exercise) == wanted:
            return exercise
    return None


def next_step():
    """Return what to do next."""
    for wanted, command in ("begun", "check"), ("", "exercise"):
        exercise = first_on_path(wanted)
        if exercise:
            return f"Next: make {command} E={exercise.number}"
    return "All are solved."


def progress(who=""):
    """Return how far one is: a line to send to the instructor."""
    numbers = {"done": [], "begun": [], "": []}
    path = along_the_path()
    for exercise in path:
        numbers[state(exercise)].append(exercise.number)
    # a container may know no name of its user
    user = os.environ.get("USER") or os.getuid()
    name = (who or f"{user}@{platform.node()}").replace(" ", "_")
    text = f"{name}: {len(numbers['done'])} of {len(path)} solved"
    if numbers["done"]:
        text += f" ({' '.join(numbers['done'])})"
    if numbers["begun"]:
        text += f", begun: {' '.join(numbers['begun'])}"
    return text


def list_exercises(who=""):
    """Print the path through the exercises, what to do next, and how far one is."""
    part = None
    for exercise in along_the_path():
        if exercise.part != part:
            part = exercise.part
            print(f"\nPart {part}. {PARTS[part]}")
        head = f"{exercise.number}  {exercise.stage:18} {exercise.minutes:3} min"
        after = f"  (after {', '.join(exercise.after)})" if exercise.after else ""
        print(f"{head}  {state(exercise):5}  {exercise.title}{after}")
    print("", next_step(), progress(who), sep="\n")


def show_room(path):
    """Print how far a room is: the lines that learners sent, in a file or on stdin."""
    text = Path(path).read_text() if path else sys.stdin.read()
    room = {}  # who: numbers solved and begun; somebody's last line counts
    for who, solved, begun in LINE.findall(text):
        room[who] = solved.split(), begun.split()
    if not room:
        refuse("no line says '3 of 34 solved': collect the last lines of 'make check'")
    width = max(map(len, room))
    solved_by = Counter()
    begun_by = Counter()
    print(f"{'who':{width}}  solved  begun")
    for who, (solved, begun) in sorted(room.items(), key=lambda item: -len(item[1][0])):
        print(f"{who:{width}}  {len(solved):6}  {' '.join(begun)}")
        solved_by.update(solved)
        begun_by.update(begun)
    print(f"\nOf {len(room)} learners so many have solved, or begun, an exercise:")
    for exercise in along_the_path():
        number = exercise.number
        if solved_by[number] or begun_by[number]:
            counts = f"{solved_by[number]:3} solved {begun_by[number]:3} begun"
            print(f"{number} {counts}  {exercise.title}")
