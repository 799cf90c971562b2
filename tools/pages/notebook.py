"""Helpers of the companion notebooks: setup, runs in real processes, curves.

The first cell of each puts the repository's root on sys.path and imports this module.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from IPython import get_ipython
from IPython.display import Markdown, display
from matplotlib_inline.backend_inline import set_matplotlib_formats

from tools.pages.switches import read_outcomes
from tools.run import compare, data, diffs, palette
from tools.run.plan import make_plan, torchrun
from tools.run.stages import ROOT, previous

RUNS = Path("runs/notebooks")
RESULT = RUNS / "result.pt"  # saved by rank 0 of a %%ranks cell for the next cell
# A process that used gloo may abort while Python shuts down, after all its work
# ("terminate called without an active exception"), because gloo's threads still hold
# tensors: https://github.com/pytorch/pytorch/pull/179291. On PyTorch 2.15, 19 of 60
# processes that left their group open did, and 2 of 25 runs of three ranks that
# destroyed it.
NO_SHUTDOWN = "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"


def mnist():
    """Return the MNIST root: DATA if set, otherwise the sample."""
    return ROOT / (os.environ.get("DATA") or "data/sample")


def prepare():
    """Set up a notebook and print the machine's PyTorch, devices and data.

    Afterwards, paths start at the repository's root, the magic %%ranks exists, and
    plots use the notebooks' style.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch.profiler's own log
    get_ipython().run_line_magic("matplotlib", "inline")  # figures without pyplot, too
    set_matplotlib_formats("svg", metadata={"Date": None})
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
    """Show a stage's diff idea by idea, as on its page, with the reasons folded."""
    base = previous(stage)
    count = diffs.changed_lines(base, stage)
    shown = [f"From **{base}** to **{stage}**: {count} changed lines.", ""]
    for idea, numbered in diffs.by_idea(base, stage):
        shown.append(f"**{idea.title or 'Your own changes'}**")
        for _, hunk in numbered:
            shown += ["```diff", *hunk.text[1:], "```"]
        if idea.text:
            shown += ["<details><summary>why</summary>\n", idea.text, "\n</details>"]
        shown.append("")
    display(Markdown("\n".join(shown)))


def stream(words, **environment):
    """Run a command in the repository's root and print its output.

    Raises RuntimeError if it fails. Interrupting the cell interrupts its processes.
    """
    with subprocess.Popen(
        list(map(str, words)),
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


def run(stage, *flags):
    """Run a stage as make does, with more flags of its script.

    Raises RuntimeError if it fails.
    """
    settings = {"DATA": str(mnist()), "OUT": str(RUNS / stage)}
    plan = make_plan(stage, settings | {"ARGS": shlex.join(map(str, flags))})
    stream(plan.command, **plan.environment)


def curve(*stages):
    """Draw and compare the curves of stages that `run` ran."""
    curves = {stage: compare.read(RUNS / stage / "metrics.csv") for stage in stages}
    lines, differ = compare.make_table(curves)
    print("\n".join(lines))
    is_sample = mnist() == ROOT / "data/sample"
    steps = read_outcomes()["steps"]["01_cpu"]["1"] if is_sample else ()
    compare.draw(curves, differ, steps)
    plt.show()
    if differ:
        raise RuntimeError(f"not one curve: look at {', '.join(differ)}")


def ranks(line, cell):
    """Run a cell in several CPU processes: %%ranks 3

    torchrun runs the cell as a script, because a notebook's functions can't be sent to
    other processes. torch.save(it, os.environ["RESULT"]) leaves an object for the next
    cell. Raises RuntimeError if the script fails.
    """
    RUNS.mkdir(parents=True, exist_ok=True)
    RESULT.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cell.py"
        path.write_text(cell + NO_SHUTDOWN)
        stream(
            [*torchrun(), "--standalone", f"--nproc-per-node={int(line)}", path],
            CUDA_VISIBLE_DEVICES="",
            PYTHONPATH=str(ROOT),
            RESULT=str(RESULT),
            MNIST=str(mnist()),
        )
