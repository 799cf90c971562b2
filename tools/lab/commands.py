"""The commands of the break-it lab: `python -m tools.lab.commands check 04`.

Two checks at once do not disturb each other: each runs in folders of its own, and the
later one writes whether the exercise is solved.
"""

import ast
import difflib
import re
import shutil
import sys
import time

from tools.lab.checks import Limit, Wrong
from tools.lab.exercise import committed, exercises, find_exercise
from tools.lab.progress import (
    WHICH,
    last_begun,
    list_exercises,
    next_new,
    next_step,
    own_script,
    progress,
    show_room,
    workshop,
)
from tools.lab.trying import try_script
from tools.run import data, stages
from tools.run.diffs import color
from tools.run.stages import end_at_a_closed_pipe, refuse, refuse_unwritable

LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")  # of Markdown: text, address
NOT_YET = 3  # exit status of a check that finds a script wrong: no error of make's


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


def check(exercise):
    """Judge the learner's script, print the verdict, and remember it in .done.

    Returns the exit status: 0, or NOT_YET.
    """
    path = own_script(exercise)
    shown = data.shown(path)
    done = path.with_name(".done")
    source = path.read_bytes()
    why = unreadable(source, shown)
    if not why:
        print(f"Running {shown}, to see what it does …", flush=True)
        why = what_is_wrong(exercise, source.decode())
    if why:
        done.unlink(missing_ok=True)
        print(f"Not yet. {why}", flush=True)
        return NOT_YET
    done.touch()
    print(f"Solved: {exercise.title}")
    met = LINK.sub(r"\1 (\2)", exercise.chapter("Where people met it"))
    print(f"Where people met it: {met}")
    print("", progress(), next_step(), sep="\n", flush=True)
    return 0


def unreadable(source, shown):
    """Return why Python cannot run a script, given as bytes, or ''.

    This takes no second: nothing imports PyTorch.
    """
    try:
        ast.parse(source.decode())
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        return f"Line {line} of {shown} is not UTF-8: save it so."
    except (SyntaxError, ValueError) as error:
        if not getattr(error, "text", None):  # it has a null byte
            return f"{shown} is not a Python script: {error}"
        line = error.text.strip()
        return f"{shown}, line {error.lineno}: {error.msg}\n    {line}"
    return ""


def what_is_wrong(exercise, text):
    """Return in words what is wrong with the text of a script, or ''."""
    from tools.lab.judge import judge  # imports PyTorch, which takes a second or two

    try:
        judge(exercise, text)
    except Limit as limit:
        return f"{limit}\nThat is the lab's limit, and need not be your mistake."
    except Wrong as wrong:
        return str(wrong)
    return ""


def watch(exercise):
    """Check the learner's script whenever it is saved, until it is right."""
    path = own_script(exercise)
    print(f"Save {data.shown(path)}, and it is checked. Ctrl-C ends this.")
    while True:
        before = saved_at(path)
        if check(exercise) != NOT_YET:
            return 0
        print("\nWaiting until you save …", flush=True)
        while saved_at(path) in (None, before):
            time.sleep(0.2)


def saved_at(path):
    """Return when a file was written, or None while an editor replaces it."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


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
    stage = stages.find_stage(name)
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
    "watch": watch,
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
    elif action == "room":
        show_room(name)
    elif action == "restore":
        restore(name or refuse("which stage? S=4, say"))
    elif action == "reset" and name == "all":
        reset_all()
    elif name:
        sys.exit(ACTIONS[action](find_exercise(name)))
    elif action == "begin":
        begin(next_new())
    elif action == "reset":
        refuse(WHICH)
    else:
        sys.exit(ACTIONS[action](last_begun()))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        refuse("stopped")
