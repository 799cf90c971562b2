"""`make try`: run a learner's script beside one that is right, and compare the curves.

How an exercise is tried, its check.py says. TRY is a dict of what a Setting has. Make's
NPROC, IMAGES, RESUME, FAKE, DOUBLE and ARGS are put in its place. A function
`prepare_try` makes files in the learner's folder, and returns flags that name them.
"""

import math
import os
import re
import shlex
import shutil
import textwrap
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from tools.lab.progress import own_script
from tools.lab.setting import ALL, FAKES, Setting
from tools.run import compare, data, plan
from tools.run.gpus import positive
from tools.run.sample import cut
from tools.run.stages import CPU_PROCESSES, refuse
from tools.run.supervise import print_command, run_command

MINUTES = 2  # that a right script may take


def planned(exercise):
    """Return the Setting that an exercise and make's variables ask for, or refuse."""
    ranks = CPU_PROCESSES.get(exercise.stage, 0)
    asked = {"processes": ranks} | exercise.try_settings()
    given = os.environ.get
    if given("NPROC"):
        if not ranks:
            refuse(f"{exercise.stage} is one process: NPROC is for those of torchrun")
        asked["processes"] = positive("NPROC", given("NPROC"))
    if given("IMAGES"):
        asked["images"] = numbers_of_images(given("IMAGES"))
    if given("RESUME"):
        asked["resume"] = positive("RESUME", given("RESUME"))
    if given("FAKE"):
        asked["fake"] = given("FAKE")
        if asked["fake"] not in FAKES:
            refuse(f"FAKE={given('FAKE')}: take {', '.join(FAKES)}")
    if given("ARGS"):
        try:
            asked["flags"] = tuple(shlex.split(given("ARGS")))
        except ValueError as error:
            refuse(f"ARGS={given('ARGS')!r} cannot be split into words: {error}")
    return Setting(**asked, float64=bool(given("DOUBLE")))


def numbers_of_images(text):
    """Return how many training and test images IMAGES asks for, or refuse."""
    wanted = tuple(int(word) for word in text.split(",") if word.isdecimal())
    if len(wanted) != 2 or not (0 < wanted[0] <= ALL[0] and 0 < wanted[1] <= ALL[1]):
        refuse(
            f"IMAGES={text}: two numbers, of images to train and to test, such as "
            f"512,101; {ALL[0]},{ALL[1]} at most"
        )
    return wanted


def run_right(exercise, setting):
    """Run the right script, print its output, and return a RunRecord.

    Refuses what makes the right script fail, too.
    """
    from tools.lab.judge import record_run  # imports PyTorch, which takes a second

    text = exercise.script("solution")
    record = record_run(text, exercise.stage, setting, 60 * MINUTES)
    if record.hangs:
        refuse(f"this takes more than {MINUTES} minutes even if the script is right")
    if record.status:
        refuse(f"a right script cannot run so: {record.error()}")
    output = re.sub("saved .*\n", "", record.stdout)
    print(f"A right script prints:\n{textwrap.indent(output, '  ')}", flush=True)
    return record


def follow(path, setting, words):
    """Run the learner's script before the learner's eyes; return its exit status."""
    environment = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [plan.python()]
    if setting.processes:
        command = [*plan.torchrun(), "--standalone"]
        command.append(f"--nproc-per-node={setting.processes}")
    pretended = [setting.fake] if setting.fake else []
    if setting.float64:
        pretended.append("float64")
    if pretended:
        command += ["-m", "tools.lab.fake", ",".join(pretended)]
    command += words
    shown = [data.shown(word) if isinstance(word, Path) else word for word in command]
    words = [str(word) for word in shown]
    print_command(environment, words)
    return run_command(data.shown(path), environment, words)


def show_keys(ours, right):
    """Print the keys of the learner's model.pth where they are not the right ones."""
    if isinstance(ours, dict) and right and list(ours) != list(right):
        print(f"The keys of your model.pth:  {', '.join(map(str, ours))}")
        print(f"The keys of the right one:   {', '.join(right)}")


def show_curves(ours, right):
    """Print the learner's curve beside the right one, and where they differ."""
    if not right:
        return
    print("\n       your loss  right loss   your test  right test")
    same = True
    for epoch, (mine, other) in enumerate(zip_longest(ours, right), start=1):
        equal = bool(mine and other) and equal_rows(epoch, mine, other)
        same = same and equal
        loss, count = in_words(mine)
        right_loss, right_count = in_words(other)
        mark = "" if equal else "  <- differs"
        texts = f"{loss:>8} {right_loss:>11} {count:>11} {right_count:>11}"
        print(f"epoch {epoch} {texts}{mark}")
    if same:
        print("The curves are equal. make check looks at more than the curve.")


def equal_rows(epoch, mine, other):
    """Return whether two rows of curves are equal but for rounding."""
    near = math.isclose(mine[0], other[0], rel_tol=compare.allowed(epoch))
    return near and mine[1:] == other[1:]


def in_words(row):
    """Return the loss and the count of an epoch as texts; a dash where it has none."""
    if row is None:
        return "-", "-"
    loss, correct, total = row
    return f"{loss:.6f}", f"{correct}/{total}"


def run_own(path, setting):
    """Run the learner's script, twice where it resumes; return the exit status."""
    folder = path.parent
    out = folder / "out"
    if setting.resume or "--resume" not in setting.flags:
        shutil.rmtree(out, ignore_errors=True)
    root = data.SAMPLE
    if setting.images != ALL:
        root = cut(folder / "data", *setting.images)
    where = f" on {FAKES[setting.fake]}" if setting.fake else ""
    print(f"Yours prints{where} (if it hangs, Ctrl-C ends it):")
    commands = setting.command_lines(path, "--data", root, "--out", out)
    for words in commands:
        status = follow(path, setting, words)
        if status:
            break
        deleted = setting.delete_others(out) if words is not commands[-1] else []
        if deleted:
            print(f"Deleted before the next run: {', '.join(deleted)}")
    return status


def try_script(exercise):
    """Run the learner's script as its page means it; return the exit status.

    What a right script prints comes first: the learner's may hang.
    """
    path = own_script(exercise)
    setting = planned(exercise)
    flags = (*setting.flags, *exercise.prepare_try(path.parent))
    setting = replace(setting, flags=flags)
    right = run_right(exercise, setting)
    status = run_own(path, setting)

    from tools.lab.judge import read_results

    own = read_results(path.parent / "out")
    show_curves(own["rows"], right.rows)
    show_keys(own["weights"], right.weights)
    return status
