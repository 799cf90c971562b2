"""The commands of the break-it lab: `python -m tools.lab.commands check 04`."""

import difflib
import os
import shutil
import sys
from pathlib import Path

from tools.lab.checks import Wrong
from tools.lab.exercise import exercises
from tools.run import data
from tools.run.diffs import colour
from tools.run.stages import CPU_PROCESSES, ROOT, end_at_a_closed_pipe, refuse


def workshop(exercise):
    """Return the folder of the learner's own script, in workshop/ or $WORKSHOP."""
    return Path(os.environ.get("WORKSHOP") or ROOT / "workshop") / exercise.folder.name


def find(text):
    """Return the exercise that a person means by `4`, `04` or `04_name`."""
    for exercise in exercises():
        if text in (exercise.number, exercise.number.lstrip("0"), exercise.folder.name):
            return exercise
    where = "'make exercises' lists them, E=04 names one"
    refuse(f"there is no exercise {text!r}: {where}")


def listed():
    """Print the list of exercises."""
    for exercise in exercises():
        folder = workshop(exercise)
        state = "done" if (folder / ".done").exists() else "begun" * folder.exists()
        head = f"{exercise.number}  {exercise.stage:18} {exercise.minutes:3} min"
        print(f"{head}  {state:5}  {exercise.title}")
    print("\nmake exercise E=01 begins one")


def begin(exercise):
    """Put the broken script and its page into workshop/."""
    path, number = workshop(exercise) / "mnist.py", exercise.number
    name = data.shown(path)
    if path.exists():
        away = f"throw it away by 'make reset E={number}'"
        refuse(f"{name} is there already, and yours: go on with it, or {away}")
    path.parent.mkdir(parents=True, exist_ok=True)
    page = exercise.text.split("\n## Hints")[0].rstrip() + "\n"
    (path.parent / "README.md").write_text(page)
    path.write_text(exercise.script("start"))
    print(f"{exercise.title}\n\n{exercise.chapter('What you observe')}")
    print(f"\n{exercise.chapter('Your task')}\n")
    program, count = "python", CPU_PROCESSES.get(exercise.stage)
    if count:
        program = f"torchrun --standalone --nproc-per-node={count}"
    command = f"OMP_NUM_THREADS=1 .venv/bin/{program} {name} --data data/sample"
    print(f"Run it yourself: {command}")
    print(f"Edit {name}, then: make check E={number}   (stuck? make hint E={number})")


def begun(exercise):
    """Return the learner's script; refuses where there is none yet."""
    path = workshop(exercise) / "mnist.py"
    if not path.exists():
        number = exercise.number
        refuse(f"exercise {number} has not begun: 'make exercise E={number}'")
    return path


def check(exercise):
    """Judge the learner's script, print the verdict, and remember it in .done."""
    path = begun(exercise)
    try:
        exercise.check(path.read_text())
    except Wrong as why:
        (workshop(exercise) / ".done").unlink(missing_ok=True)
        refuse(f"Not yet. {why}")
    (workshop(exercise) / ".done").touch()
    print(f"Solved: {exercise.title}")
    print(f"Where people met it: {exercise.chapter('Where people met it')}")


def hint(exercise):
    """Print the next hint; after the last one, all of them."""
    begun(exercise)
    counter = workshop(exercise) / ".hints"
    hints = exercise.hints()
    given = len(counter.read_text()) if counter.exists() else 0
    counter.write_text("x" * min(given + 1, len(hints)))
    for number, text in enumerate(hints[: given + 1], start=1):
        print(f"{number} of {len(hints)}: {text}")
    if given >= len(hints):
        command = f"'make solution E={exercise.number}'"
        print(f"That was the last one; {command} shows the diff.")


def solution(exercise):
    """Print the diff from the broken script to the solution."""
    name = f"workshop/{exercise.folder.name}/mnist.py"
    old, new = (exercise.script(n).splitlines() for n in ("start", "solution"))
    diff = difflib.unified_diff(old, new, name, "solution", lineterm="")
    print(*colour(list(diff)), sep="\n")


def reset(exercise):
    """Throw the learner's folder away."""
    if workshop(exercise).exists():
        shutil.rmtree(workshop(exercise))
    print(f"exercise {exercise.number} is new again: make exercise E={exercise.number}")


def main():
    end_at_a_closed_pipe()
    actions = {"begin": begin, "check": check, "hint": hint, "solution": solution,
               "reset": reset}  # fmt: skip
    action, *names = [word for word in sys.argv[1:] if word]
    if action == "list":
        listed()
    elif not names:
        refuse("which exercise? E=04, say; 'make exercises' lists them")
    else:
        actions[action](find(names[0]))


if __name__ == "__main__":
    main()
