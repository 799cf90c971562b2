"""How far a learner is."""

import os
from pathlib import Path

from tools.lab.exercise import PARTS, along_the_path
from tools.lab.track import ALL, along_the_track, chosen_track
from tools.run.doctor import sender
from tools.run.stages import ROOT, refuse

WHICH = "which exercise? E=05, say; 'make exercises' lists them"


def workshop_folder():
    """Return the learner's folder: workshop/ or $WORKSHOP."""
    return Path(os.environ.get("WORKSHOP") or ROOT / "workshop")


def workshop(exercise):
    """Return the learner's folder for an exercise."""
    return workshop_folder() / exercise.name


def own_script(exercise):
    """Return the path of the learner's script; refuses where there is none yet."""
    path = workshop(exercise) / "mnist.py"
    if not path.exists():
        number = exercise.number
        refuse(f"exercise {number} has not begun: 'make exercise E={number}'")
    return path


def script_text(path):
    """Return the text of a learner's script, even where it is no UTF-8."""
    return path.read_text(encoding="utf-8", errors="replace")


def state(exercise):
    """Return `done`, `begun` or nothing."""
    folder = workshop(exercise)
    if (folder / ".done").exists():
        return "done"
    return "begun" if folder.exists() else ""


def in_order_begun():
    """Return the exercises that were begun, also those solved, the last one last."""
    pages = {one: workshop(one) / "README.md" for one in along_the_path()}
    begun = [one for one in pages if pages[one].exists()]
    return sorted(begun, key=lambda one: pages[one].stat().st_mtime_ns)


def last_begun():
    """Return the exercise that was begun last; refuses where none is begun."""
    begun = in_order_begun()
    return begun[-1] if begun else refuse(WHICH)


def first_on_track(wanted):
    """Return the first exercise of a state on the learner's track, or None."""
    for exercise in along_the_track(chosen_track(workshop_folder())):
        if state(exercise) == wanted:
            return exercise
    return None


def next_step():
    """Return what to do next."""
    for wanted, command in ("begun", "check"), ("", "exercise"):
        exercise = first_on_track(wanted)
        if exercise:
            return f"Next: make {command} E={exercise.number}"
    track = chosen_track(workshop_folder())
    if track == ALL:
        return "All are solved."
    return f"All of {track} are solved. Next: make exercise TRACK={ALL}"


def report(who=""):
    """Return how far one is: a line to send to the instructor."""
    path = along_the_path()
    solved = [one.number for one in path if state(one) == "done"]
    begun = [one.number for one in in_order_begun() if state(one) == "begun"]
    text = f"{sender(who)}: {len(solved)} of {len(path)} solved"
    if solved:
        text += f" ({' '.join(solved)})"
    following = first_on_track("")
    if begun:
        text += f", begun: {' '.join(begun)}"
    elif following:
        text += f", next: {following.number}"
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
    print("", next_step(), report(who), sep="\n")
