"""Prepare a run's results folder without losing an earlier run's results.

A new run moves them to `before/`, until a later run replaces them.
"""

import json
import shutil

from tools.run.stages import BY_NAME, TABLE, refuse

CURVE = "metrics.csv"
HEADS = "epoch,loss,correct,total,seconds\n", "step,loss,correct,total,seconds\n"
MODEL = "model.pth"
STATES = [row.state for row in TABLE if row.state]
FLAGS = "flags.json"  # the run's flags, {name: value}
MARK = "unfinished"  # exists until a run succeeds
# In the order in which they move, so that a folder's curve matches its model.
NAMES = [MODEL, *STATES, FLAGS, MARK, CURVE]
# The flags that change the first or the second curve.
SHARED = "batch_size", "lr", "hidden", "seed", "data", "blocks", "dtype", "every"


def refuse_foreign(folder):
    """Exit if a run would replace files that no run has written."""
    curve = folder / CURVE
    is_ours = (folder / FLAGS).exists()
    if not is_ours and curve.is_file():  # from a script started by hand
        with open(curve, errors="replace") as file:
            is_ours = file.readline() in HEADS
    for name in NAMES:
        if not is_ours and name != MARK and (folder / name).exists():
            why = f"{folder / name} was not written by a run"
            refuse(f"{why}. Choose another folder, OUT=DIR, or move the file")


def read_flags(folder):
    """Return the flags of the run in a folder, {name: value}; {} if unknown."""
    try:
        return dict(json.loads((folder / FLAGS).read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def begin(plan):
    """Prepare a run's folder. With --resume, nothing in it changes.

    Refuses flags that would join two different curves.
    """
    out = plan.args.out
    state = BY_NAME[plan.stage].state
    if getattr(plan.args, "resume", False) and (out / state).exists():
        refuse_resume(plan, out / state)
    else:
        put_aside(out)
        flags = {name: str(value) for name, value in vars(plan.args).items()}
        (out / FLAGS).write_text(json.dumps(flags))
    (out / MARK).touch()


def refuse_resume(plan, state):
    """Exit if the run in a folder cannot resume with this plan."""
    out = plan.args.out
    anew = "or start over without --resume"
    if not (out / CURVE).exists():
        refuse(f"{state} exists without {out / CURVE}. Restore it, {anew}")
    flags = read_flags(out)
    for name in SHARED:
        text = str(getattr(plan.args, name, None))
        if flags.get(name, text) != text:
            flag = f"--{name.replace('_', '-')}"
            why = f"the run in {out} began with {flag} {flags[name]}, not {text}"
            refuse(f"{why}. Resume it with that value, {anew}")


def put_aside(out):
    """Move an earlier run's results to `before/`, where they replace older ones.

    Nothing is kept of a run that ended before its first epoch.
    """
    before = out / "before"
    has_curve = (out / CURVE).exists()
    for name in NAMES if has_curve else STATES:
        if has_curve or (out / name).exists():
            remove(before / name)
        if (out / name).exists():
            before.mkdir(exist_ok=True)
            (out / name).replace(before / name)


def remove(path):
    """Remove a file or folder if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
