"""Generated parts that change a stage: their diffs, and what their scripts print."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.lab.exercise import patched
from tools.run import compare
from tools.run.stages import CPU_PROCESSES, ROOT, refuse, script

VARIANTS = ROOT / "tests" / "beyond" / "variants"  # a patch for each variant
# What a learner may leave out of stage 4: (its name, the text of the script, what
# stands there instead).
LEFT_OUT = [
    (
        "DistributedSampler",
        "DistributedSampler(train, seed",
        "DistributedSampler(train, 1, 0, seed",  # as one rank of one: takes all images
    ),
    ("// world_size", "args.batch_size // world_size", "args.batch_size"),
    ("the wrapper", "nn.parallel.DistributedDataParallel(model)", "model"),
    ("all_reduce", "    dist.all_reduce(totals)", "    #"),
    ("set_epoch", "        sampler.set_epoch(epoch)", "        #"),
]


def variant(name):
    """Return the diff from a stage to the variant."""
    text = (VARIANTS / f"{name}.patch").read_text()
    return f"```diff\n{text[text.index('@@') :].rstrip()}\n```"


def variant_stage(name):
    """Return the stage that a variant changes: its patch names it in the first line."""
    first = (VARIANTS / f"{name}.patch").read_text().splitlines()[0]
    return first.removeprefix("--- ").removesuffix("/mnist.py")


def losses(name, text, processes):
    """Return a line with the losses of a script, run on the CPU, on the sample."""
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    words = [sys.executable]
    if processes:
        words += ["-m", "torch.distributed.run", "--standalone"]
        words += [f"--nproc-per-node={processes}"]
    with tempfile.TemporaryDirectory() as out:
        path = Path(out) / "mnist.py"
        path.write_text(text)
        words += [path, "--data", "data/sample", "--out", out]
        result = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True
        )
        if result.returncode:
            refuse(f"{name} failed:\n{result.stderr}")
        curve = compare.read(Path(out) / "metrics.csv")
    numbers = [f"{loss:.6f}" for loss, *_ in curve]
    return "  ".join([f"{name:18}", *numbers])


def variants(*words):
    """Return the losses of variants, and before them those of the stages they change.

    A word is a variant, or one with its number of processes: `hsdp=4`.
    """
    rows = ["```console", f"{'':18}  epoch 1   epoch 2   epoch 3"]
    shown = []
    for word in words:
        name, _, number = word.partition("=")
        stage = variant_stage(name)
        processes = CPU_PROCESSES.get(stage)
        text = script(stage).read_text()
        if stage not in shown:
            shown.append(stage)
            rows.append(losses(stage, text, processes))
        text = patched(text, VARIANTS / f"{name}.patch", stage)
        rows.append(losses(name, text, int(number) if number else processes))
    return "\n".join([*rows, "```"])


def left_out():
    """Return the losses of stage 4, and of the same script without one change each."""
    text = script("04_ddp").read_text()
    processes = CPU_PROCESSES["04_ddp"]
    rows = ["```console", f"{'without':18}  epoch 1   epoch 2   epoch 3"]
    rows.append(losses("(nothing left out)", text, processes))
    for name, old, new in LEFT_OUT:
        if text.count(old) != 1:
            refuse(f"04_ddp/mnist.py has {text.count(old)} times {old!r}, not once")
        rows.append(losses(name, text.replace(old, new), processes))
    return "\n".join([*rows, "```"])
