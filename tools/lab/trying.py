"""`make try`: run a learner's script and a correct one, and compare their curves.

[try] in exercise.toml sets fields of the Setting. `prepare_try` in check.py creates
files in the learner's folder and returns the flags for them. WITH="processes=3" changes
any fields.
"""

import math
from dataclasses import replace

from onecurve import api
from tools.lab.commands import chosen
from tools.lab.progress import own_script, script_text
from tools.lab.setting import of_page, read_fields
from tools.run import compare
from tools.run.data import shown
from tools.run.stages import refuse

LIMIT = 15  # seconds without progress, or of computing
FIRST = 6  # images shown per epoch


def show_run(title, record):
    """Print a script's output and how it failed."""
    lines = [line for line in record.stdout.splitlines() if line[:6] != "saved "]
    print(title, *lines, sep="\n  ", flush=True)
    if record.hangs:
        print(f"It {record.too_long()}")
    elif record.status:
        print(f"It fails: {record.error()}")


def show_curves(ours, right, is_second=False):
    """Print two curves, both [(epoch or step, row)], and where they differ."""
    label, counted = ("step", "copied") if is_second else ("epoch", "test")
    heads = "your loss", "right loss", f"your {counted}", f"right {counted}"
    print("\n{:7} {:>9} {:>11} {:>12} {:>12}".format("", *heads))
    wanted = dict(right)
    missing = [(epoch, None) for epoch in wanted if epoch not in dict(ours)]
    told = set()
    differ = False
    for epoch, mine in ours + missing:
        other = None if epoch in told else wanted.get(epoch)
        told.add(epoch)
        equal = mine and other and is_near(mine, other, int(epoch), is_second)
        differ = differ or not equal
        losses = [f"{row[0]:.6f}" if row else "-" for row in (mine, other)]
        counts = [f"{row[1]}/{row[2]}" if row else "-" for row in (mine, other)]
        texts = f"{losses[0]:>9} {losses[1]:>11} {counts[0]:>12} {counts[1]:>12}"
        print(f"{label} {epoch} {texts}{'' if equal else '  <- differs'}")
    if not differ:
        print("The curve is correct. To check everything else: make check")


def is_near(mine, other, epoch, is_second):
    """Return whether two rows of an epoch are equal, up to rounding of the loss."""
    rounding = compare.EXACT if is_second else compare.allowed(epoch)
    near = math.isclose(mine[0], other[0], rel_tol=rounding)
    return near and mine[1:] == other[1:]


def facts(record):
    """Return {title: fact} for other facts about a run."""
    steps = len(record.of("step"))
    found = {"steps of rank 0": str(steps)} if steps else {}
    for epoch, reading in enumerate(record.readings(0, True), start=1):
        if reading["indices"]:
            first = " ".join(map(str, reading["indices"][:FIRST]))
            found[f"rank 0's first images in epoch {epoch}"] = first
    if isinstance(record.weights, dict):
        found["tensors in model.pth"] = ", ".join(map(str, record.weights))
    return found


def show_facts(own, right):
    ours = facts(own)
    for what, text in facts(right).items():
        if what in ours and ours[what] != text:
            print(f"{what}:", f"  yours  {ours[what]}", f"  right  {text}", sep="\n")


def main(name, fields=""):
    """Run the learner's script and a correct one, and print the output of both."""
    exercise = chosen(name)
    path = own_script(exercise)
    setting = replace(of_page(exercise.stage, **exercise.tried), **read_fields(fields))
    why = api.syntax_error(script_text(path))
    if why:
        refuse(f"{shown(path)} does not compile: {why}")
    print(f"Two runs {setting.described()}.", flush=True)
    api.call("tools.lab.trying:run_both", exercise, setting, path)


def run_both(exercise, setting, path):
    """Run a correct script and the one at `path`, and print the output of both."""
    from tools.lab.running import PATIENCE, record_run  # imports PyTorch

    check = exercise.load_check()
    if hasattr(check, "prepare_try"):
        made = map(str, check.prepare_try(path.parent))
        setting = replace(setting, flags=(*setting.flags, *made))
    right = record_run(exercise.script("solution"), exercise.stage, setting, PATIENCE)
    if right.status:
        why = right.too_long() if right.hangs else right.error()
        refuse(f"even a correct script fails here: {why}")
    show_run("A correct script prints:", right)
    own = record_run(script_text(path), exercise.stage, setting, LIMIT)
    show_run("Yours prints:", own)
    if right.rows:
        show_curves(own.curve, right.curve, setting.steps > 0)
    show_facts(own, right)
