"""Generated parts that run scripts: stages, variants, small programs, own scripts."""

import functools
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.bench import held
from tools.bench.runs import run, run_text
from tools.bench.tables import table
from tools.lab import fake_cuda
from tools.pages import outcomes
from tools.run import compare
from tools.run.edit import VARIANTS, variant_stage, variant_text
from tools.run.stages import (
    BY_NAME,
    CPU_PROCESSES,
    ROOT,
    STAGES,
    TRANSFORMER,
    refuse,
    script,
)

PROGRAMS = {  # path of a small program -> its ranks, or None for two fake GPUs
    "03_dp/gathered.py": None,
    "04_ddp/hello.py": 2,
    "04_ddp/link.py": 2,
    "04_ddp/rank0_first.py": 2,
    "05_ddp_inference/in_order.py": 3,
    "beyond/rounded.py": 8,
    "beyond/own_script/scaled.py": 2,
}
HEADING = "{:18}  epoch 1   epoch 2   epoch 3"
SECOND = "{:18}  1-30      31-60     61-90"  # steps of the second curve


def console(*lines):
    """Return lines of output as Markdown."""
    return "\n".join(["```console", *lines, "```"])


def train(name, text, processes, runs, *flags):
    """Run a script's source, with results in `runs`/`name` and the sample as MNIST.

    Returns its output. Raises SystemExit if it fails.
    """
    out = Path(runs) / name
    out.mkdir()
    if "--data" in text:
        flags += "--data", "data/sample"
    return run_text(name, text, processes, out, *flags).replace(str(runs), "runs")


@functools.cache
def all_runs():
    """Return a TemporaryDirectory for the stages' results, deleted at exit."""
    return tempfile.TemporaryDirectory()


@functools.cache
def trained(stage):
    """Return a stage's output without a GPU; its results are in `all_runs`."""
    text = script(stage).read_text()
    return train(stage, text, CPU_PROCESSES.get(stage), all_runs().name)


def started(processes):
    """Return the command that starts Python, or `processes` ranks of it."""
    if processes:
        return f".venv/bin/torchrun --standalone --nproc-per-node={processes}"
    return ".venv/bin/python"


def printed(stage):
    """Return a stage's output without a GPU, below the command that make runs."""
    variables = "OMP_NUM_THREADS=1"
    if BY_NAME[stage].quiet:
        variables += f" TORCH_LOGS=-{BY_NAME[stage].quiet}"
    command = f"{variables} {started(CPU_PROCESSES.get(stage))}"
    path = script(stage).relative_to(ROOT)
    text = trained(stage).strip()
    return console(" ".join(["$", command, str(path), *BY_NAME[stage].usual]), text)


def verdict():
    """Return the end of `make all`'s output: the six curves and the verdict."""
    for stage in STAGES:
        trained(stage)
    runs = all_runs().name
    with tempfile.TemporaryDirectory() as six:
        for stage in STAGES:
            (Path(six) / stage).symlink_to(Path(runs) / stage)
        words = [sys.executable, "-m", "tools", "compare", f"OUT={six}"]
        result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if result.returncode:
        refuse(f"the six curves differ:\n{result.stderr}")
    return console("$ make all", "…", result.stdout.replace(six, "runs").strip())


def fake_two_gpus(rank):
    """Give a rank two fake GPUs."""
    fake_cuda.two_gpus(lambda *_, **__: None)


def program(path):
    """Return a program of PROGRAMS and its output, in a fixed order."""
    processes = PROGRAMS[path]
    prepare = None if processes else (fake_two_gpus,)
    lines = run(path, [ROOT / path], processes, prepare=prepare).stdout.splitlines()
    if path == "04_ddp/hello.py":  # its ranks print in any order
        lines.sort()
    variables = "OMP_NUM_THREADS=1 " if processes else ""
    command = f"$ {variables}{started(processes)} {path}"
    code = f"```python\n{(ROOT / path).read_text()}```\n\n"
    return code + console(command, *lines)


def losses(runs, name):
    """Return the losses of a run with results in `runs`/`name`."""
    return [loss for loss, *_ in compare.read(Path(runs) / name / "metrics.csv")]


def printed_losses(printed):
    """Return the losses in a script's output, as strings."""
    return re.findall(r"loss (\S+)", printed)


def variant(name):
    """Return the diff from a stage to the variant."""
    text = (VARIANTS / f"{name}.patch").read_text()
    return f"```diff\n{text[text.index('@@') :].rstrip()}\n```"


def variants(*words):
    """Return the losses of variants, after the losses of the stages they change.

    A word is a variant, or a variant with a number of processes, `hsdp=4`, or with a
    flag, `zero_2--lr=1`. All belong to the same curve.
    """
    is_second = variant_stage(words[0].partition("=")[0]) in TRANSFORMER.values()
    curves = {}
    for word in words:
        first, *flags = word.replace("--", " --").split()
        name, _, number = first.partition("=")
        stage = variant_stage(name)
        steps = ["--steps", 90] if is_second else []
        processes = int(number) if number else CPU_PROCESSES.get(stage)
        if stage not in curves:
            trained(stage)
            curves[stage] = losses(all_runs().name, stage)[:3]
        with tempfile.TemporaryDirectory() as runs:
            train(name, variant_text(name), processes, runs, *flags, *steps)
            curves[" ".join([name, *flags])] = losses(runs, name)
    width = max(18, *map(len, curves))
    rows = []
    for name, curve in curves.items():
        rows.append("  ".join([f"{name:{width}}", *[f"{loss:.6f}" for loss in curve]]))
    heading = SECOND if is_second else HEADING
    return console(heading.format(" " * width), *rows)


def held_by_variants(*names):
    """Return a table of what stages or variants store and send.

    Without names, it contains all stages of the second curve. In the first curve, the
    last rank is shown, because DDP's rank 0 also sends the buckets' sizes.
    """
    found = []
    for name in names or TRANSFORMER.values():
        ranks = held.measure(name)
        one = ranks[0 if variant_stage(name) in TRANSFORMER.values() else -1]
        sizes = [f"{one[kind]:,}" for kind in held.SHOWN]
        formula = held.FORMULAS.get(name, "")
        found.append([f"`{name}`", len(ranks), *sizes, formula])
    width = 7 if any(row[-1] for row in found) else 6
    rows = [row[:width] for row in found]
    return table("lrrrrrl"[:width], held.HEADINGS[:width], rows)


def left_out(stage):
    """Return a table of a stage's losses, also without some of its lines."""
    rows = []
    for name, one in outcomes.left_out(stage).items():
        title = name or "(nothing left out)"
        if "error" in one:
            title += f", fails: `{one['error']}`"
        rows.append([title, *[f"{loss:.6f}" for loss, *_ in one["curve"]]])
    return table("lrrr", ["without", "epoch 1", "epoch 2", "epoch 3"], rows)


def widths():
    """Return the losses of stage 12 on 2, 3 and 1 ranks, next to stage 1's."""
    stage = "12_sharded_checkpoint"
    lines = ["         ranks  loss      stage 1, 96 images a step"]
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--out", folder, "--batch-size", "96"]  # divisible by each
        alone = printed_losses(run("01_cpu", [script("01_cpu"), *flags], None).stdout)
        for epoch, ranks in enumerate((2, 3, 1), 1):
            words = [script(stage), *flags, "--epochs", epoch]
            words += ["--resume"] if epoch > 1 else []
            (loss,) = printed_losses(run(stage, words, ranks).stdout)
            lines.append(f"epoch {epoch}  {ranks:5}  {loss}  {alone[epoch - 1]}")
    return console(*lines)
