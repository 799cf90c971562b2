"""`make try`: run a learner's script beside one that is right, and compare the curves.

How an exercise is tried, TRY in its check.py says: a dict of what `Trial` has. Make's
NPROC, IMAGES, RESUME, FAKE and ARGS are put in its place.
"""

import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from tools.lab.progress import own_script
from tools.run import compare, data, plan
from tools.run.gpus import positive
from tools.run.sample import cut
from tools.run.stages import CPU_PROCESSES, ROOT, refuse
from tools.run.supervise import print_command, run_command

FAKES = {  # what FAKE may be: functions of tools.lab.fake_cuda
    "one_gpu": "a fake GPU",
    "fast_gpu": "a fake GPU, three times as fast",
    "two_gpus": "two fake GPUs",
    "three_gpus": "three fake GPUs",
    "slow_disk": "a slow disk",
    "machines": "a machine for each rank",
}


@dataclass
class Trial:
    """How an exercise is tried."""

    processes: int = 0  # ranks; 0: no torchrun
    images: tuple = ()  # of training and of test; (): all of data/sample
    resume: int = 0  # epochs that a first run trains, before one with --resume
    fake: str = ""  # a key of FAKES
    double: bool = False  # float64, as the check has it: other initial weights, too
    flags: list = field(default_factory=list)  # of the script; ARGS replaces them
    always: list = field(default_factory=list)  # flags that ARGS is added to
    before: list = field(default_factory=list)  # a Python script, run first


def planned(exercise):
    """Return the Trial that an exercise and make's variables ask for, or refuse."""
    trial = Trial(**exercise.try_settings())
    ranks = CPU_PROCESSES.get(exercise.stage, 0)
    trial.processes = trial.processes or ranks
    given = os.environ.get
    if given("NPROC"):
        if not ranks:
            refuse(f"{exercise.stage} is one process: NPROC is for those of torchrun")
        trial.processes = positive("NPROC", given("NPROC"))
    if given("IMAGES"):
        trial.images = numbers_of_images(given("IMAGES"))
    if given("RESUME"):
        trial.resume = positive("RESUME", given("RESUME"))
    if given("FAKE"):
        trial.fake = given("FAKE")
        if trial.fake not in FAKES:
            refuse(f"FAKE={trial.fake}: take {', '.join(FAKES)}")
    trial.double = bool(given("DOUBLE"))
    if given("ARGS"):
        try:
            trial.flags = shlex.split(given("ARGS"))
        except ValueError as error:
            refuse(f"ARGS={given('ARGS')!r} cannot be split into words: {error}")
    return trial


def numbers_of_images(text):
    """Return how many training and test images IMAGES asks for, or refuse."""
    train, test = data.check(data.SAMPLE)
    wanted = tuple(int(word) for word in text.split(",") if word.isdecimal())
    if len(wanted) != 2 or not (0 < wanted[0] <= train and 0 < wanted[1] <= test):
        refuse(
            f"IMAGES={text}: two numbers, of images to train and to test, such as "
            f"512,101; {train},{test} at most"
        )
    return wanted


def lines(trial, path, root, folder):
    """Return the command lines of a script's runs: two where it resumes.

    `folder` is the learner's, where what `before` has made is.
    """
    words = [path, "--data", root, "--out", path.parent / "out"]
    for word in trial.always:
        words.append(word.replace("FOLDER", str(data.shown(folder))))
    if not trial.resume:
        return [[*words, *trial.flags]]
    first = [*without(trial.flags, "--epochs"), "--epochs", trial.resume]
    return [[*words, *first], [*words, *trial.flags, "--resume"]]


def without(flags, name):
    """Return flags without one of them and what follows it."""
    if name not in flags:
        return list(flags)
    place = flags.index(name)
    return [*flags[:place], *flags[place + 2 :]]


def pretend(rank, name):
    """In a rank of the right script: have it believe in what FAKES says."""
    from tools.lab import fake

    fake.install(name)


def run_right(trial, commands):
    """Run the right script and print its output; refuses what makes it fail, too."""
    from tools.run import ranks  # imports PyTorch, which takes a second or two

    prepare = (pretend, trial.fake) if trial.fake else None
    output = ""
    for words in commands:
        try:
            result = ranks.run(words, trial.processes, trial.double, prepare=prepare)
        except ranks.TimedOut:
            refuse("this takes more than two minutes even if the script is right")
        if result.returncode:
            errors = [text for text, _ in result.errors.values() if text]
            errors += result.stderr.strip().splitlines()[-1:]
            refuse(f"a right script cannot run so: {errors[0]}")
        output += re.sub("saved .*\n", "", result.stdout)
    print(f"A right script prints:\n{textwrap.indent(output, '  ')}", flush=True)


def follow(path, trial, words):
    """Run the learner's script before the learner's eyes; return its exit status."""
    environment = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [plan.python()]
    if trial.processes:
        command = [*plan.torchrun(), "--standalone"]
        command.append(f"--nproc-per-node={trial.processes}")
    pretended = [trial.fake] if trial.fake else []
    if trial.double:
        pretended.append("float64")
    if pretended:
        command += ["-m", "tools.lab.fake", ",".join(pretended)]
    command += words
    shown = [data.shown(word) if isinstance(word, Path) else word for word in command]
    words = [str(word) for word in shown]
    print_command(environment, words)
    return run_command(data.shown(path), environment, words)


def read_curve(path):
    """Return the curve that a script has written, or []."""
    try:
        return compare.read(path.parent / "out" / "metrics.csv")
    except (OSError, ValueError, KeyError, TypeError):
        return []


def read_keys(path):
    """Return the keys of the model.pth that a script has written, or []."""
    import torch

    try:
        model = torch.load(path.parent / "out" / "model.pth", "cpu", weights_only=True)
        return [str(key) for key in model]
    except Exception:  # noqa: BLE001, whatever a learner's script has written there
        return []


def show_keys(ours, right):
    """Print the keys of the learner's model.pth where they are not the right ones."""
    if ours and ours != right:
        print(f"The keys of your model.pth:  {', '.join(ours)}")
        print(f"The keys of the right one:   {', '.join(right)}")


def show_curves(ours, right):
    """Print the learner's curve beside the right one, and where they differ."""
    if not right:
        return
    print("\n       your loss  right loss   your test  right test")
    same = True
    for epoch in range(1, max(len(ours), len(right)) + 1):
        mine = in_words(ours, epoch)
        other = in_words(right, epoch)
        equal = mine == other
        if epoch <= min(len(ours), len(right)):
            loss, *counts = ours[epoch - 1]
            right_loss, *right_counts = right[epoch - 1]
            near = math.isclose(loss, right_loss, rel_tol=compare.allowed(epoch))
            equal = near and counts == right_counts
        same = same and equal
        mark = "" if equal else "  <- differs"
        print(
            f"epoch {epoch} {mine[0]:>8} {other[0]:>11} {mine[1]:>11} {other[1]:>11}"
            f"{mark}"
        )
    if same:
        print("The curves are equal.")


def in_words(curve, epoch):
    """Return the loss and the count of an epoch as texts; a dash where it has none."""
    if epoch > len(curve):
        return "-", "-"
    loss, correct, total = curve[epoch - 1]
    return f"{loss:.6f}", f"{correct}/{total}"


def try_script(exercise):
    """Run the learner's script as its page means it; return the exit status.

    What a right script prints comes first: the learner's may hang.
    """
    path = own_script(exercise)
    trial = planned(exercise)
    folder = path.parent
    root = cut(folder / "data", *trial.images) if trial.images else data.SAMPLE
    if trial.before:
        program, name = trial.before
        words = [sys.executable, ROOT / program, folder / name]
        subprocess.run(words, check=True)
    with tempfile.TemporaryDirectory() as temporary:
        right = Path(temporary) / exercise.name / "mnist.py"
        right.parent.mkdir()
        right.write_text(exercise.script("solution"))
        run_right(trial, lines(trial, right, root, folder))
        curve = read_curve(right)
        keys = read_keys(right)
    if trial.resume or "--resume" not in trial.flags:
        shutil.rmtree(folder / "out", ignore_errors=True)
    where = f" on {FAKES[trial.fake]}" if trial.fake else ""
    print(f"Yours prints{where} (if it hangs, Ctrl-C ends it):")
    for words in lines(trial, path, root, folder):
        status = follow(path, trial, words)
        if status:
            break
    show_curves(read_curve(path), curve)
    show_keys(read_keys(path), keys)
    return status
