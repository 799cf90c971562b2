"""Generated parts that run scripts: stages, variants of stages, `make inspect`."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.lab.exercise import patched
from tools.pages import outcomes
from tools.run import compare, ranks
from tools.run.stages import BY_NAME, CPU_PROCESSES, ROOT, refuse, script

VARIANTS = ROOT / "tests" / "beyond" / "variants"  # a patch for each variant
MISTAKES = ROOT / "beyond" / "own_script" / "mistakes.patch"
NOTHING = "(nothing left out)"
HEADING = "{:18}  epoch 1   epoch 2   epoch 3"


def console(*lines):
    """Return lines of output as Markdown."""
    return "\n".join(["```console", *lines, "```"])


def train(name, text, processes):
    """Run a script, a text, on the sample; return what it prints, and its losses.

    Raises SystemExit where it fails.
    """
    with tempfile.TemporaryDirectory() as runs:
        out = Path(runs) / name
        out.mkdir()
        path = out / "mnist.py"
        path.write_text(text)
        words = [path, "--data", "data/sample", "--out", out]
        result = ranks.run(words, processes, timeout=300)
        if result.returncode:
            refuse(f"{name} failed, so its page cannot show it:\n{result.stderr}")
        losses = [loss for loss, *_ in compare.read(out / "metrics.csv")]
    return result.stdout.replace(runs, "runs"), losses


def printed(stage):
    """Return what a stage prints without a GPU, with the command that make runs."""
    variables = "OMP_NUM_THREADS=1"
    if BY_NAME[stage].quiet:
        variables += f" TORCH_LOGS=-{BY_NAME[stage].quiet}"
    program = ".venv/bin/python"
    processes = CPU_PROCESSES.get(stage)
    if processes:
        program = f".venv/bin/torchrun --standalone --nproc-per-node={processes}"
    path = script(stage).relative_to(ROOT)
    text, _ = train(stage, script(stage).read_text(), processes)
    return console(f"$ {variables} {program} {path} --out runs/{stage}", text.strip())


def row(name, losses):
    """Return a line with the losses of the epochs."""
    return "  ".join([f"{name:18}", *(f"{loss:.6f}" for loss in losses)])


def variant(name):
    """Return the diff from a stage to the variant."""
    text = (VARIANTS / f"{name}.patch").read_text()
    return f"```diff\n{text[text.index('@@') :].rstrip()}\n```"


def variant_stage(name):
    """Return the stage that a variant changes: its patch names it in the first line."""
    first = (VARIANTS / f"{name}.patch").read_text().splitlines()[0]
    return first.removeprefix("--- ").removesuffix("/mnist.py")


def variants(*words):
    """Return the losses of variants, and before them those of the stages they change.

    A word is a variant, or one with its number of processes: `hsdp=4`.
    """
    curves = {}
    for word in words:
        name, _, number = word.partition("=")
        stage = variant_stage(name)
        text = script(stage).read_text()
        processes = CPU_PROCESSES.get(stage)
        if stage not in curves:
            _, curves[stage] = train(stage, text, processes)
        if number:
            processes = int(number)
        changed = patched(text, VARIANTS / f"{name}.patch", stage)
        _, curves[name] = train(name, changed, processes)
    rows = [row(name, losses) for name, losses in curves.items()]
    return console(HEADING.format(""), *rows)


def left_out(stage):
    """Return the losses of a stage, and of the same script without one change each."""
    curves = outcomes.left_out(stage)
    rows = [row(name or NOTHING, losses) for name, losses in curves.items()]
    return console(HEADING.format("without"), *rows)


def inspected():
    """Return what `make inspect` says of after_ddp.py with the patch's mistakes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.py"
        original = script("after_ddp").read_text()
        path.write_text(patched(original, MISTAKES, "after_ddp"))
        words = [sys.executable, "-m", "tools.inspect", path]
        words += ["--data", ROOT / "data/sample"]
        result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 1 or result.stderr:
        refuse(f"make inspect found nothing, or failed:\n{result.stderr}")
    text = re.sub(r"(?m)[ ]+$", "", result.stdout.strip())
    return console("$ make inspect SCRIPT=train.py", text)
