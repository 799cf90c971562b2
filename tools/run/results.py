"""The folder of a run's results: what an earlier run has left there is not lost.

A new run puts it into `before/`, where it stays until a later run takes its place.
"""

import json
import shutil

from tools.run.stages import BY_NAME, TABLE, refuse

CURVE = "metrics.csv"
HEADS = "epoch,loss,correct,total,seconds\n", "step,loss,correct,total,seconds\n"
MODEL = "model.pth"
STATES = [row.state for row in TABLE if row.state]
FLAGS = "flags.json"  # of the run: {name: text}
MARK = "unfinished"  # until a run ends well
# In the order in which they are put aside: a curve in a folder is that of its model.
NAMES = [MODEL, *STATES, FLAGS, MARK, CURVE]
# The flags that move the curve, of either.
SHARED = "batch_size", "lr", "hidden", "seed", "data", "blocks", "dtype", "every"


def refuse_foreign(folder):
    """End the program where a run would replace files that no run has written."""
    curve = folder / CURVE
    is_ours = (folder / FLAGS).exists()
    if not is_ours and curve.is_file():  # of a script that was started by hand
        with open(curve, errors="replace") as file:
            is_ours = file.readline() in HEADS
    for name in NAMES:
        if not is_ours and name != MARK and (folder / name).exists():
            why = f"{folder / name} is of no run, which would replace it"
            refuse(f"{why}: name another folder, OUT=DIR, or move the file")


def read_flags(folder):
    """Return the flags of the run in a folder, {name: text}; {} if nobody knows."""
    try:
        return dict(json.loads((folder / FLAGS).read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def begin(plan):
    """Make the folder of a run ready. With --resume, all stays as it is.

    Refuses flags that would make one curve of two.
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
    """End the program where the run in a folder cannot go on as a plan says."""
    out = plan.args.out
    anew = "or begin anew, without --resume"
    if not (out / CURVE).exists():
        refuse(f"{state} is there and {out / CURVE} is not: bring it back, {anew}")
    flags = read_flags(out)
    for name in SHARED:
        text = str(getattr(plan.args, name, None))
        if flags.get(name, text) != text:
            flag = f"--{name.replace('_', '-')}"
            why = f"the run in {out} began with {flag} {flags[name]}, not {text}"
            refuse(f"{why}: resume it with that, {anew}")


def put_aside(out):
    """Move an earlier run's results to `before/`, where they replace older ones.

    A run that ended before its first epoch has none, and of it nothing is kept.
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
    """Remove a file or a folder, which may be absent."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
