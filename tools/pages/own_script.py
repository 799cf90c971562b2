"""Generated parts of the page on your own script: curves and an inspection."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.bench.runs import run
from tools.pages.variants import console, printed_losses
from tools.run.edit import read_edits
from tools.run.inspecting import EXPLAINED
from tools.run.stages import OWN, ROOT, refuse, script

# First the inspected script's mistakes together, then each alone.
MISTAKES = ROOT / "beyond" / "own_script" / "mistakes.diff"
# The scripts' processes, and the settings in which the page compares them.
PROCESSES = {"before": None, "after_ddp": 2, "after_fsdp": 2}
NOT_RANDOM = ["--dropout", "0", "--no-augment"]
SETTINGS = {
    "GroupNorm, no dropout, no augmentation": ["--norm", "group", *NOT_RANDOM],
    "BatchNorm, no dropout, no augmentation": NOT_RANDOM,
    "BatchNorm, dropout, augmentation": [],
}


def inspected():
    """Return the report of `make inspect` on after_ddp.py with these mistakes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.py"
        mistakes, *_ = read_edits(MISTAKES)
        path.write_text(mistakes.apply(script("after_ddp").read_text()))
        words = [sys.executable, "-m", "onecurve", "--pages", EXPLAINED, path]
        words += ["--data", ROOT / "data/sample"]
        result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 1:  # stderr contains its progress
        refuse(f"make inspect found nothing or failed:\n{result.stderr}")
    text = re.sub(r"(?m)[ ]+$", "", result.stdout.strip())
    return console("$ make inspect SCRIPT=train.py", text)


def own_curves():
    """Return each script's losses in each setting, in float64.

    Losses of after_ddp.py with a mistake follow, in the first setting.
    """
    rows = []
    for title, flags in SETTINGS.items():
        rows.append(f"{title:40}epoch 1   epoch 2   epoch 3")
        rows += [own_curve(name, name, script(name), flags) for name in OWN]
    title, flags = next(iter(SETTINGS.items()))
    rows.append(f"after_ddp with a mistake, {title.partition(',')[0]}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.py"
        for mistake in read_edits(MISTAKES)[1:]:
            path.write_text(mistake.apply(script("after_ddp").read_text()))
            rows.append(own_curve(mistake.name, "after_ddp", path, flags))
    return console(*rows)


def own_curve(title, name, path, flags):
    """Return a table row: the losses of the script at `path`, a version of `name`."""
    with tempfile.TemporaryDirectory() as out:
        words = [path, "--out", out, *flags]
        printed = run(name, words, PROCESSES[name], float64=True).stdout
    count = re.findall(r"test (\S+)", printed)[-1]
    return "  ".join([f"{title:38}", *printed_losses(printed), f"test {count}"])
