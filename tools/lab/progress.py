"""How far a learner is, and how far a room of learners is."""

import getpass
import os
import platform
import re
import sys
from collections import Counter
from pathlib import Path

from tools.lab.exercise import along_the_path, find_exercise, names
from tools.lab.path import PARTS
from tools.run.stages import ROOT, refuse

WHICH = "which exercise? E=04, say; 'make exercises' lists them"
# a line of `progress`, with whatever a chat has put in front of it
LINE = re.compile(r"(\S+): \d+ of \d+ solved(?: \(([\d ]+)\))?(?:, begun: ([\d ]+))?")


def workshop(name):
    """Return the learner's folder for an exercise, in workshop/ or $WORKSHOP."""
    return Path(os.environ.get("WORKSHOP") or ROOT / "workshop") / name


def own_script(exercise):
    """Return the path of the learner's script; refuses where there is none yet."""
    path = workshop(exercise.name) / "mnist.py"
    if not path.exists():
        number = exercise.number
        refuse(f"exercise {number} has not begun: 'make exercise E={number}'")
    return path


def state(name):
    """Return `done`, `begun` or nothing."""
    folder = workshop(name)
    if (folder / ".done").exists():
        return "done"
    return "begun" if folder.exists() else ""


def last_begun():
    """Return the exercise that was begun last; refuses where none is begun."""
    times = {}
    for name in names():
        page = workshop(name) / "README.md"
        if page.exists():
            times[name] = page.stat().st_mtime
    if not times:
        refuse(WHICH)
    return find_exercise(max(times, key=times.get))


def first_on_path(wanted):
    """Return the first exercise of a state on the path, or None."""
    for exercise in along_the_path():
        if state(exercise.name) == wanted:
            return exercise
    return None


def next_new():
    """Return the next exercise that has not begun; refuses where there is none."""
    exercise = first_on_path("")
    if exercise is None:
        refuse(f"every exercise has begun. {next_step()}")
    return exercise


def next_step():
    """Return what to do next."""
    for wanted, command in ("begun", "check"), ("", "exercise"):
        exercise = first_on_path(wanted)
        if exercise:
            return f"Next: make {command} E={exercise.number}"
    return "All are solved."


def progress():
    """Return how far one is: a line to send to the instructor."""
    numbers = {"done": [], "begun": [], "": []}
    everything = along_the_path()
    for exercise in everything:
        numbers[state(exercise.name)].append(exercise.number)
    who = os.environ.get("WHO") or f"{getpass.getuser()}@{platform.node()}"
    who = who.replace(" ", "_")
    text = f"{who}: {len(numbers['done'])} of {len(everything)} solved"
    if numbers["done"]:
        text += f" ({' '.join(numbers['done'])})"
    if numbers["begun"]:
        text += f", begun: {' '.join(numbers['begun'])}"
    return text


def list_exercises():
    """Print the path through the exercises, what to do next, and how far one is."""
    part = None
    for exercise in along_the_path():
        if exercise.part != part:
            part = exercise.part
            print(f"\nPart {part}. {PARTS[part]}")
        head = f"{exercise.number}  {exercise.stage:18} {exercise.minutes:3} min"
        after = f"  (after {', '.join(exercise.after)})" if exercise.after else ""
        print(f"{head}  {state(exercise.name):5}  {exercise.title}{after}")
    print("", next_step(), progress(), sep="\n")


def read_lines(lines):
    """Return {who: (numbers solved, numbers begun)}; somebody's last line counts."""
    found = {}
    for line in lines:
        match = LINE.search(line)
        if match:
            who, solved, begun = match.groups()
            found[who] = (solved or "").split(), (begun or "").split()
    return found


def show_room(path):
    """Print how far a room is: the lines that learners sent, in a file or on stdin."""
    try:
        text = Path(path).read_text() if path else sys.stdin.read()
    except OSError as error:
        refuse(f"cannot read {path}: {error.strerror}")
    room = read_lines(text.splitlines())
    if not room:
        refuse("no line says '3 of 34 solved': collect the last lines of 'make check'")
    width = max(map(len, room))
    print(f"{'who':{width}}  solved  begun")
    for who, (solved, begun) in sorted(room.items(), key=lambda item: -len(item[1][0])):
        print(f"{who:{width}}  {len(solved):6}  {' '.join(begun)}")
    solved_by = Counter()
    stuck = Counter()
    for solved, begun in room.values():
        solved_by.update(solved)
        stuck.update(begun)
    print(f"\nOf {len(room)} learners so many have solved, or begun, an exercise:")
    for exercise in along_the_path():
        number = exercise.number
        if number in solved_by or number in stuck:
            counts = f"{solved_by[number]:3} solved {stuck[number]:3} begun"
            print(f"{number} {counts}  {exercise.title}")
