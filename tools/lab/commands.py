"""The commands of the break-it lab: `python -m tools.lab.commands check 04`.

Two checks at once do not disturb each other: each runs in folders of its own, and the
later one writes whether the exercise is solved.
"""

import difflib
import os
import shutil
import sys
from pathlib import Path

from tools.lab.checks import Limit, Wrong
from tools.lab.exercise import (
    committed,
    exercises,
    find_exercise,
    names,
    number_of,
)
from tools.run import data, launch, stages
from tools.run.diffs import color
from tools.run.stages import (
    CPU_PROCESSES,
    ROOT,
    end_at_a_closed_pipe,
    refuse,
    refuse_unwritable,
)

NOT_YET = 3  # exit status of a check that finds a script wrong: no error of make's
WHICH = "which exercise? E=04, say; 'make exercises' lists them"


def workshop(name):
    """Return the learner's folder for an exercise, in workshop/ or $WORKSHOP."""
    return Path(os.environ.get("WORKSHOP") or ROOT / "workshop") / name


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


def next_step():
    """Return what to do next."""
    for wanted, command in ("begun", "check"), ("", "exercise"):
        for name in names():
            if state(name) == wanted:
                return f"Next: make {command} E={number_of(name)}"
    return "All are solved."


def progress():
    """Return how far one is: a line to send to the instructor."""
    numbers = {"done": [], "begun": [], "": []}
    for name in names():
        numbers[state(name)].append(number_of(name))
    text = f"{len(numbers['done'])} of {len(names())} solved"
    if numbers["done"]:
        text += f" ({' '.join(numbers['done'])})"
    if numbers["begun"]:
        text += f", begun: {' '.join(numbers['begun'])}"
    return text


def list_exercises():
    """Print the list of exercises, what to do next, and how far one is."""
    for exercise in exercises():
        head = f"{exercise.number}  {exercise.stage:18} {exercise.minutes:3} min"
        print(f"{head}  {state(exercise.name):5}  {exercise.title}")
    print("", next_step(), progress(), sep="\n")


def begin(exercise):
    """Put the broken script and its page into workshop/."""
    number = exercise.number
    folder = workshop(exercise.name)
    path = folder / "mnist.py"
    shown = data.shown(path)
    if path.exists():
        away = f"throw it away by 'make reset E={number}'"
        refuse(f"{shown} is there already, and yours: go on with it, or {away}")
    refuse_unwritable(folder, "work in a copy of the repository of your own")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(exercise.without_hints())
    path.write_text(exercise.script("start"))
    print(f"{exercise.title}\n\n{exercise.chapter('What you observe')}")
    print(f"\n{exercise.chapter('Your task')}\n")
    print(f"Run it: make try E={number}")
    print(f"Edit {shown}, then: make check E={number}   (stuck? make hint E={number})")


def own_script(exercise):
    """Return the path of the learner's script; refuses where there is none yet."""
    path = workshop(exercise.name) / "mnist.py"
    if not path.exists():
        number = exercise.number
        refuse(f"exercise {number} has not begun: 'make exercise E={number}'")
    return path


def try_script(exercise):
    """Run the learner's script as the page means it; return the exit status.

    It runs on as many ranks and fake GPUs as the exercise's `TRY` says.
    """
    path = own_script(exercise)
    settings = exercise.try_settings()
    environment = {"OMP_NUM_THREADS": "1"}
    programs = Path(sys.executable).parent
    command = [programs / "python"]
    processes = settings.get("processes") or CPU_PROCESSES.get(exercise.stage)
    if processes:
        command = [programs / "torchrun", "--standalone"]
        command.append(f"--nproc-per-node={processes}")
    if "fake" in settings:
        environment["CUDA_VISIBLE_DEVICES"] = ""
        command += ["-m", "tools.lab.fake", settings["fake"]]
        print("On fake GPUs:")
    command += [path, "--data", data.SAMPLE, "--out", path.parent / "out"]
    command += settings.get("flags", [])
    shown = [data.shown(word) if isinstance(word, Path) else word for word in command]
    words = [str(word) for word in shown]
    launch.show(environment, words)
    return launch.follow(data.shown(path), environment, words, None)


def check(exercise):
    """Judge the learner's script, print the verdict, and remember it in .done."""
    path = own_script(exercise)
    print(f"Running {data.shown(path)}, to see what it does …", flush=True)
    why = what_is_wrong(exercise, path)
    done = path.with_name(".done")
    if why:
        done.unlink(missing_ok=True)
        print(f"Not yet. {why}")
        sys.exit(NOT_YET)
    done.touch()
    print(f"Solved: {exercise.title}")
    print(f"Where people met it: {exercise.chapter('Where people met it')}")
    print("", progress(), next_step(), sep="\n")


def what_is_wrong(exercise, path):
    """Return in words what is wrong with the script in a file, or ''."""
    from tools.lab.judge import judge  # imports PyTorch, which takes a second or two

    try:
        judge(exercise, path.read_bytes().decode())
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        return f"Line {line} of {data.shown(path)} is not UTF-8: save it so."
    except Limit as limit:
        return f"{limit}\nThat is the lab's limit, and need not be your mistake."
    except Wrong as wrong:
        return str(wrong)
    return ""


def hint(exercise):
    """Print the next hint, and those before it; after the last one, all of them."""
    counter = own_script(exercise).with_name(".hints")
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
    start = exercise.script("start").splitlines()
    solved = exercise.script("solution").splitlines()
    name = f"workshop/{exercise.name}/mnist.py"
    diff = difflib.unified_diff(start, solved, name, "solution", lineterm="")
    print(color("\n".join(diff)))


def reset(exercise):
    """Throw the learner's folder for an exercise away."""
    folder = workshop(exercise.name)
    if folder.exists():
        shutil.rmtree(folder)
        print(f"exercise {exercise.number} is new again")


def reset_all():
    """Throw the learner's folders for all exercises away."""
    for exercise in exercises():
        reset(exercise)


def restore(name):
    """Bring a stage's script back as committed; keep the edited one beside it."""
    stage = stages.find(name)
    path = stages.script(stage)
    shown = data.shown(path)
    text = committed(stage)
    if text is None:
        refuse(f"git has no {shown} here: download the repository again")
    if not path.exists():
        path.write_text(text)
        print(f"{shown} is as committed again")
    elif path.read_bytes() == text.encode():
        print(f"{shown} is as it was")
    else:
        copy = free_name(path)
        path.replace(copy)
        path.write_text(text)
        kept = f"your version is {data.shown(copy)}"
        print(f"{shown} is as committed again; {kept}")


def free_name(path):
    """Return a path beside a script where no file is, such as mnist_edited2.py."""
    copy = path.with_name("mnist_edited.py")
    number = 2
    while copy.exists():
        copy = path.with_name(f"mnist_edited{number}.py")
        number += 1
    return copy


ACTIONS = {
    "begin": begin,
    "try": try_script,
    "check": check,
    "hint": hint,
    "solution": solution,
    "reset": reset,
}


def main():
    end_at_a_closed_pipe()
    action, *words = [word for word in sys.argv[1:] if word]
    name = words[0] if words else None
    if action == "list":
        list_exercises()
    elif action == "restore":
        restore(name or refuse("which stage? S=4, say"))
    elif action == "reset" and name == "all":
        reset_all()
    elif name:
        sys.exit(ACTIONS[action](find_exercise(name)))
    elif action in ("begin", "reset"):
        refuse(WHICH)
    else:
        sys.exit(ACTIONS[action](last_begun()))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        refuse("stopped")
