"""A learner's progress on the whole path or on a workshop's track.

exercises/tracks.csv contains the tracks, each with its spare exercises last. The
learner's workshop folder stores the chosen track for later commands.
"""

import csv
import os
from pathlib import Path

from tools.lab.exercise import PARTS, along_the_path
from tools.run.doctor import sender
from tools.run.stages import ROOT, refuse

WHICH = "which exercise? Pass its number, as in E=05. To list them: make exercises"
TRACKS = ROOT / "exercises/tracks.csv"
ALL = "all"  # the track with all exercises, in the path's order


def workshop_folder():
    """Return the learner's folder: workshop/ or $WORKSHOP."""
    return Path(os.environ.get("WORKSHOP") or ROOT / "workshop")


def workshop(exercise):
    """Return the learner's folder for an exercise."""
    return workshop_folder() / exercise.name


def own_script(exercise):
    """Return the path of the learner's script, or exit if there is none."""
    path = workshop(exercise) / exercise.file
    if not path.exists():
        number = exercise.number
        refuse(f"exercise {number} hasn't begun. Try: make exercise E={number}")
    return path


def script_text(path):
    """Return a learner's script, even if it isn't UTF-8."""
    return path.read_text(encoding="utf-8", errors="replace")


def state(exercise):
    """Return `done`, `begun` or ''."""
    folder = workshop(exercise)
    if (folder / ".done").exists():
        return "done"
    return "begun" if folder.exists() else ""


def last_begun():
    """Return the exercise begun last, even if solved, or exit if there is none."""
    pages = {one: workshop(one) / "README.md" for one in along_the_path()}
    begun = [one for one in pages if pages[one].exists()]
    if not begun:
        refuse(WHICH)
    return max(begun, key=lambda one: pages[one].stat().st_mtime_ns)


def along_the_track(track):
    """Return a track's exercises in order, or exit if there is no such track."""
    by_name = {exercise.name: exercise for exercise in along_the_path()}
    tracks = {ALL: list(by_name)}
    with open(TRACKS, newline="") as file:
        for row in csv.DictReader(file):
            tracks.setdefault(row["track"], []).append(row["exercise"])
    if track not in tracks:
        refuse(f"there is no track {track!r}. Try: TRACK={' or '.join(tracks)}")
    for name in tracks[track]:
        if name not in by_name:
            refuse(f"exercises/tracks.csv: no exercise {name!r} for track {track}")
    return [by_name[name] for name in tracks[track]]


def chosen_track():
    path = workshop_folder() / ".track"
    return path.read_text().strip() if path.exists() else ALL


def choose_track(track):
    """Store the name of the learner's track, or exit if it is unknown."""
    along_the_track(track)
    workshop_folder().mkdir(parents=True, exist_ok=True)
    (workshop_folder() / ".track").write_text(track + "\n")


def first_on_track(wanted):
    """Return the first exercise on the learner's track in a state, or None."""
    found = [one for one in along_the_track(chosen_track()) if state(one) == wanted]
    return found[0] if found else None


def next_step():
    """Return a line with the next command."""
    for wanted, command in ("begun", "check"), ("", "exercise"):
        exercise = first_on_track(wanted)
        if exercise:
            return f"Next: make {command} E={exercise.number}"
    track = chosen_track()
    if track == ALL:
        return "All exercises are solved."
    return f"Track {track} is solved. Next: make exercise TRACK={ALL}"


def report():
    """Return a line on the learner's progress, to send to the instructor."""
    path = along_the_path()
    solved = [one.number for one in path if state(one) == "done"]
    names = f" ({' '.join(solved)})" if solved else ""
    return f"{sender()}: {len(solved)} of {len(path)} solved{names}"


def list_exercises():
    """Print the path, the next command and the learner's progress."""
    part = None
    for exercise in along_the_path():
        if exercise.part != part:
            part = exercise.part
            print(f"\nPart {part}. {PARTS[part]}")
        head = f"{exercise.number}  {exercise.stage:18} {exercise.minutes:3} min"
        after = f"  (after {', '.join(exercise.after)})" if exercise.after else ""
        print(f"{head}  {state(exercise):5}  {exercise.title}{after}")
    print("", next_step(), report(), sep="\n")
