"""The commands of the break-it lab: `python -m tools.lab.commands check 04`.

Two checks at once do not meet: each runs in folders of its own, and the later one writes
whether it is solved.
"""

import difflib
import os
import shutil
import sys
from pathlib import Path

from tools.lab.checks import Limit, Wrong
from tools.lab.exercise import committed, exercises
from tools.run import data, launch, stages
from tools.run.diffs import colour
from tools.run.stages import (
    CPU_PROCESSES,
    ROOT,
    end_at_a_closed_pipe,
    refuse,
    refuse_unwritable,
)

NOT_YET = 3  # exit status of a check that finds a script wrong: no error of make's
WHICH = "which exercise? E=04, say; 'make exercises' lists them"


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


def state(exercise):
    """Return `done`, `begun` or nothing."""
    folder = workshop(exercise)
    return "done" if (folder / ".done").exists() else "begun" * folder.exists()


def last_begun():
    """Return the exercise that was begun last; refuses where none is begun."""
    pages = [(workshop(one) / "README.md", one) for one in exercises()]
    times = [(page.stat().st_mtime, n) for n, (page, _) in enumerate(pages)
             if page.exists()]  # fmt: skip
    if not times:
        refuse(WHICH)
    return pages[max(times)[1]][1]


def following():
    """Return what to do next, and how far one is: two lines of text."""
    numbers = {"done": [], "begun": [], "": []}
    for exercise in exercises():
        numbers[state(exercise)].append(exercise.number)
    done, begun, new = numbers.values()
    what, far = "All are solved.", f"{len(done)} of {len(exercises())} solved"
    if begun or new:
        what = f"make check E={begun[0]}" if begun else f"make exercise E={new[0]}"
        what = f"Next: {what}"
    if done:
        far += f" ({' '.join(done)})"
    if begun:
        far += f", begun: {' '.join(begun)}"
    return what, far


def listed():
    """Print the list of exercises; the last line is one to send to the instructor."""
    for exercise in exercises():
        head = f"{exercise.number}  {exercise.stage:18} {exercise.minutes:3} min"
        print(f"{head}  {state(exercise):5}  {exercise.title}")
    print("", *following(), sep="\n")


def begin(exercise):
    """Put the broken script and its page into workshop/."""
    path, number = workshop(exercise) / "mnist.py", exercise.number
    name = data.shown(path)
    if path.exists():
        away = f"throw it away by 'make reset E={number}'"
        refuse(f"{name} is there already, and yours: go on with it, or {away}")
    refuse_unwritable(path.parent, "work in a copy of the repository of your own")
    path.parent.mkdir(parents=True, exist_ok=True)
    page = exercise.text.split("\n## Hints")[0].rstrip() + "\n"
    (path.parent / "README.md").write_text(page)
    path.write_text(exercise.script("start"))
    print(f"{exercise.title}\n\n{exercise.chapter('What you observe')}")
    print(f"\n{exercise.chapter('Your task')}\n")
    print(f"Run it: make try E={number}")
    print(f"Edit {name}, then: make check E={number}   (stuck? make hint E={number})")


def begun(exercise):
    """Return the learner's script; refuses where there is none yet."""
    path = workshop(exercise) / "mnist.py"
    if not path.exists():
        number = exercise.number
        refuse(f"exercise {number} has not begun: 'make exercise E={number}'")
    return path


def attempt(exercise):
    """Run the learner's script as the page means it; return the exit status.

    That is on as many ranks and fake GPUs as the exercise's `TRY` says.
    """
    path, settings = begun(exercise), exercise.settings()
    folder, environment = path.parent, {"OMP_NUM_THREADS": "1"}
    program = Path(sys.executable).parent
    command = [data.shown(program / "python")]
    count = settings.get("processes") or CPU_PROCESSES.get(exercise.stage)
    if count:
        command = [data.shown(program / "torchrun"), "--standalone"]
        command += [f"--nproc-per-node={count}"]
    if "fake" in settings:
        environment["CUDA_VISIBLE_DEVICES"] = ""
        command += ["-m", "tools.lab.fake", settings["fake"]]
        print("On fake GPUs:")
    command += [data.shown(path), "--data", data.shown(data.SAMPLE)]
    command += ["--out", data.shown(folder / "out"), *settings.get("flags", [])]
    command = list(map(str, command))
    launch.show(environment, command)
    return launch.follow(data.shown(path), environment, command, None)


def check(exercise):
    """Judge the learner's script, print the verdict, and remember it in .done."""
    path = begun(exercise)
    print(f"Running {data.shown(path)}, to see what it does …", flush=True)
    try:
        exercise.check(path.read_bytes().decode())
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        why, left = f"Line {line} of {data.shown(path)} is not UTF-8: save it so.", ""
    except Limit as limit:
        why, left = limit, "\nThat is the lab's limit, and need not be your mistake."
    except Wrong as wrong:
        why, left = wrong, ""
    else:
        why = None
    if why:
        (workshop(exercise) / ".done").unlink(missing_ok=True)
        print(f"Not yet. {why}{left}")
        sys.exit(NOT_YET)
    (workshop(exercise) / ".done").touch()
    print(f"Solved: {exercise.title}")
    print(f"Where people met it: {exercise.chapter('Where people met it')}")
    print("", *following()[::-1], sep="\n")


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


def reset(*these):
    """Throw the learner's folders away."""
    for exercise in these:
        if workshop(exercise).exists():
            shutil.rmtree(workshop(exercise))
            print(f"exercise {exercise.number} is new again")


def restore(name):
    """Bring a stage's script back to what is committed; keep the edited one beside it."""
    stage = stages.find(name)
    path, text = stages.script(stage), committed(stage)
    if text is None:
        refuse(f"git has no {data.shown(path)} here: download the repository again")
    if path.exists() and path.read_bytes() == text.encode():
        print(f"{data.shown(path)} is as it was")
        return
    kept = ""
    if path.exists():
        copy = path.with_name("mnist_edited.py")
        for number in range(2, 100):
            if copy.exists():
                copy = path.with_name(f"mnist_edited{number}.py")
        path.replace(copy)
        kept = f"; your version is {data.shown(copy)}"
    path.write_text(text)
    print(f"{data.shown(path)} is as committed again{kept}")


def main():
    end_at_a_closed_pipe()
    actions = {"begin": begin, "try": attempt, "check": check, "hint": hint,
               "solution": solution, "reset": reset}  # fmt: skip
    action, *names = [word for word in sys.argv[1:] if word]
    if action == "list":
        listed()
    elif action == "restore":
        restore(names[0] if names else refuse("which stage? S=4, say"))
    elif action == "reset" and names == ["all"]:
        reset(*exercises())
    elif not names and action in ("begin", "reset"):
        refuse(WHICH)
    else:
        sys.exit(actions[action](find(names[0]) if names else last_begun()))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        refuse("stopped")
