"""The commands of the break-it lab, such as `make check E=04`.

Concurrent checks don't interfere with each other: each uses its own folders.
"""

import difflib
import shutil

from onecurve import api
from tools.lab import progress
from tools.lab.exercise import Exercise, find_exercise, refuse_edited_stage
from tools.run import data
from tools.run.diffs import color
from tools.run.stages import refuse


def chosen(name):
    """Return the named exercise, by default the one begun last."""
    if isinstance(name, Exercise):
        return name
    exercise = find_exercise(name) if name else progress.last_begun()
    refuse_edited_stage(exercise)
    return exercise


def begin(exercise):
    """Copy the broken script and its page to workshop/ and print the task."""
    number = exercise.number
    folder = progress.workshop(exercise)
    path = folder / exercise.file
    shown = data.shown(path)
    if path.exists():
        print(f"{shown} is as you left it. This was the task:\n")
    else:
        text = exercise.script("start")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "README.md").write_text(exercise.without_hints())
        path.write_text(text)
    observed = exercise.chapter("What you observe")
    task = exercise.chapter("Your task")
    print(exercise.title, observed, task, sep="\n\n", end="\n\n")
    print(f"Run it: make try E={number}")
    print(f"Edit {shown}, then: make check E={number}   (stuck? make hint E={number})")


def forked_verdict(exercise, text):
    """Return judge.verdict's result from a process that has imported PyTorch."""
    return api.call("tools.lab.judge:verdict", exercise, text)


def check(name, verdict=forked_verdict):
    """Judge the learner's script and return the exit status: 0, or 1 if it is wrong."""
    api.start_server()  # importing PyTorch takes longest
    exercise = chosen(name)
    path = progress.own_script(exercise)
    text = progress.script_text(path)
    why = api.syntax_error(text)
    if why:
        why = f"The run fails: {why}"
    else:
        print(f"Running {data.shown(path)} …", flush=True)
        why = verdict(exercise, text)
    if why:  # a solved exercise stays solved
        print(f"Not yet. {why}")
        return 1
    path.with_name(".done").touch()
    print(f"Solved: {exercise.title}")
    print(f"Where people met it:\n{exercise.chapter('Where people met it')}\n")
    print(progress.report(), progress.next_step(), sep="\n")
    return 0


def hint(name):
    """Print the next hint and all earlier ones."""
    exercise = chosen(name)
    counter = progress.own_script(exercise).with_name(".hints")
    hints = exercise.hints()
    given = len(counter.read_text()) if counter.exists() else 0
    counter.write_text("x" * min(given + 1, len(hints)))
    for number, text in enumerate(hints[: given + 1], start=1):
        print(f"{number} of {len(hints)}: {text}\n")


def solution(name):
    """Print the diff from the broken script to the solution."""
    exercise = chosen(name)
    start = exercise.script("start").splitlines()
    solved = exercise.script("solution").splitlines()
    name = f"workshop/{exercise.name}/{exercise.file}"
    diff = difflib.unified_diff(start, solved, name, "solution", lineterm="")
    print(color("\n".join(diff)))


def reset(name):
    """Delete the learner's folder for a named exercise."""
    exercise = find_exercise(name or refuse(progress.WHICH))
    folder = progress.workshop(exercise)
    if not folder.exists():
        refuse(f"exercise {exercise.number} hasn't begun; nothing was deleted")
    shutil.rmtree(folder)
    print(f"exercise {exercise.number} was reset")


def main_exercise(name, track):
    """Begin an exercise, by default the next one on the track."""
    if track:
        progress.choose_track(track)
    exercise = find_exercise(name) if name else progress.first_on_track("")
    exercise = exercise or progress.last_begun()
    refuse_edited_stage(exercise)
    begin(exercise)
