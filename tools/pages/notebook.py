"""What the companion notebooks share: where they are, runs in real processes, clocks.

Imported by the first cell of each, which puts the root of the repository on sys.path.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from IPython import get_ipython
from IPython.display import Markdown, display

from tools.pages.reasons import reasons
from tools.run import compare, data, diffs, palette
from tools.run.stages import CPU_PROCESSES, ROOT, previous, script

RUNS = Path("runs/notebooks")
RESULT = RUNS / "result.pt"  # what rank 0 of a %%ranks cell leaves for the next cell
TORCHRUN = ["-m", "torch.distributed.run", "--standalone"]
# A process that has used gloo may abort while Python shuts down, when all its work is
# done ("terminate called without an active exception"): gloo's threads still hold
# tensors then, https://github.com/pytorch/pytorch/pull/179291. On PyTorch 2.15, 19 of
# 60 processes did that left their group open, and still 2 of 25 runs of three ranks
# that destroyed it.
NO_SHUTDOWN = "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"


def mnist():
    """Return the MNIST root: DATA if given, else the sample."""
    return ROOT / (os.environ.get("DATA") or "data/sample")


def prepare():
    """Prepare a notebook, and print what this machine has.

    From then on paths are those of the repository, there is a magic %%ranks, and
    pictures are drawn in the style of all notebooks.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch.profiler's own log
    get_ipython().run_line_magic("matplotlib", "inline")  # figures without pyplot, too
    plt.rcParams.update(palette.STYLE)
    get_ipython().register_magic_function(ranks, "cell")
    torch.set_num_threads(1)
    os.chdir(ROOT)
    train, test = data.check(mnist())
    gpus = torch.cuda.device_count()
    print(f"repository  {ROOT}")
    print(f"PyTorch     {torch.__version__}, Python {sys.version.split()[0]}")
    print(f"devices     {gpus} GPU{'s' * (gpus != 1)}, {os.cpu_count()} CPU cores")
    print(f"data        {mnist()}: {train} training, {test} test images")


def show_diff(stage):
    """Show the hunks of the diff that the stage's page explains, each reason folded."""
    base = previous(stage)
    hunks = diffs.hunks(base, stage)
    count = diffs.changed_lines(base, stage)
    shown = [f"From **{base}** to **{stage}**: {count} changed lines."]
    for hunk, reason in zip(hunks, reasons(base, stage), strict=True):
        lines = "\n".join(hunk.text[1:])
        shown.append(f"**{reason.title}**\n```diff\n{lines}\n```")
        shown.append(f"<details><summary>why</summary>\n\n{reason.text}\n\n</details>")
    display(Markdown("\n\n".join(shown)))


def stream(words, **environment):
    """Run Python with these words in the root of the repository; print what it prints.

    Raises RuntimeError where it fails. An interrupted cell interrupts its processes.
    """
    with subprocess.Popen(
        [sys.executable, *map(str, words)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"OMP_NUM_THREADS": "1", **os.environ, "PYTHONUNBUFFERED": "1"}
        | environment,
    ) as child:
        for line in child.stdout:
            print(line, end="", flush=True)
    if child.returncode:
        raise RuntimeError(f"exit status {child.returncode}: see above")


def run(stage, *flags, processes=None):
    """Run a stage in processes of its own, with further flags of its script.

    Without `processes`, a stage for torchrun has one for each GPU, but at least two.
    Raises RuntimeError where it fails.
    """
    words = [script(stage), "--data", mnist(), "--out", RUNS / stage, *flags]
    if stage in CPU_PROCESSES:
        gpus = torch.cuda.device_count()
        processes = processes or max(2, gpus)
        if gpus < processes:
            words += ["--backend", "gloo"]  # NCCL needs a GPU for each process
        words = [*TORCHRUN, f"--nproc-per-node={processes}", *words]
    stream(words)


def curve(*stages):
    """Draw the curves of stages that `run` has run, and say whether they are equal."""
    curves = {stage: compare.read(RUNS / stage / "metrics.csv") for stage in stages}
    lines, differ = compare.make_table(curves)
    print("\n".join(lines))
    compare.draw(curves, differ)
    plt.show()
    if differ:
        raise RuntimeError(f"not one curve: {', '.join(differ)}")


def ranks(line, cell):
    """Run a cell on several processes of this machine's CPU: %%ranks 3

    The cell becomes a script of its own, started by torchrun: functions of a notebook
    cannot be sent to other processes. It may leave an object for the next cell by
    torch.save(it, os.environ["RESULT"]). Raises RuntimeError where it fails.
    """
    RUNS.mkdir(parents=True, exist_ok=True)
    RESULT.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cell.py"
        path.write_text(cell + NO_SHUTDOWN)
        stream(
            [*TORCHRUN, f"--nproc-per-node={int(line)}", path],
            CUDA_VISIBLE_DEVICES="",
            PYTHONPATH=str(ROOT),
            RESULT=str(RESULT),
            MNIST=str(mnist()),
        )
