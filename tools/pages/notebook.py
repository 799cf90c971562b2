"""What the companion notebooks share: where they are, runs in real processes, clocks.

Imported by the first cell of each, which puts the root of the repository on sys.path.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from IPython import get_ipython
from IPython.display import HTML, display
from markdown_it import MarkdownIt
from torch.autograd import DeviceType

from tools.pages import blocks, drawing
from tools.run import compare, data, diffs, launch, plots, supervise
from tools.run.plan import make_plan
from tools.run.stages import ROOT, previous

RUNS = Path("runs/notebooks")
RESULT = RUNS / "result.pt"  # what rank 0 of a %%ranks cell leaves for the next cell
# A process that has used gloo may abort while Python shuts down, when all its work is
# done ("terminate called without an active exception"): gloo's threads still hold
# tensors then, https://github.com/pytorch/pytorch/pull/179291. On PyTorch 2.15, 19 of
# 60 processes did that left their group open, and still 2 of 25 runs of three ranks
# that destroyed it.
NO_SHUTDOWN = "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"
# What JupyterLab may have been started with, and holds for every run in its notebooks.
INHERITED = "GPUS", "NPROC", "OMP_NUM_THREADS"
BACKGROUND = {"-": "rgba(230, 130, 30, .22)", "+": "rgba(60, 140, 240, .22)"}


@contextlib.contextmanager
def refusals_raised():
    """Turn a refusal into a RuntimeError: an exit would not stop the next cells."""
    try:
        yield
    except SystemExit as refusal:
        raise RuntimeError(str(refusal)) from None


@refusals_raised()
def mnist():
    """Return the MNIST root: DATA if given, else the sample."""
    given = os.environ.get("DATA")  # empty where a make hands on what nobody gave
    return ROOT / given if given else data.SAMPLE


def prepare():
    """Prepare a notebook, and print what this machine has.

    From then on paths are those of the repository, there is a magic %%ranks, and
    pictures are drawn in the style of all notebooks.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch.profiler's own log
    get_ipython().run_line_magic("matplotlib", "inline")  # figures without pyplot, too
    plt.rcParams.update(drawing.STYLE)
    get_ipython().register_magic_function(ranks, "cell")
    torch.set_num_threads(1)
    os.chdir(ROOT)
    root = mnist()
    gpus = torch.cuda.device_count()
    train, test = data.verify(root)
    size = "all of MNIST" if train == 60_000 else "a sample of MNIST"
    print(f"repository  {ROOT}")
    print(f"PyTorch     {torch.__version__}, Python {sys.version.split()[0]}")
    print(f"devices     {gpus} GPU{'s' * (gpus != 1)}, {os.cpu_count()} CPU cores")
    found = f"{size}: {train} training, {test} test images"
    print(f"data        {data.shown(root)}, {found}")


def show_diff(stage):
    """Show the hunks of the diff that the stage's page explains, each reason folded."""
    base = previous(stage)
    found = diffs.hunks(base, stage)
    reasons = blocks.reasons(base, stage)
    count = diffs.changed_lines(base, stage)
    html = f"<p>From <b>{base}</b> to <b>{stage}</b>: {count} changed lines.</p>"
    for number, (hunk, reason) in enumerate(zip(found, reasons, strict=True), start=1):
        lines = ""
        for line in hunk.text[1:]:
            color = BACKGROUND.get(line[0], "none")
            style = f"display: block; padding: 0 .5em; background: {color}"
            lines += f'<span style="{style}">{escape(line)}</span>'
        why = MarkdownIt().render(reason.text)
        title = MarkdownIt().renderInline(reason.title)
        html += f"""<p style="margin: .8em 0 .2em"><b>{number} of {len(found)}</b>
            {title} <code>{escape(hunk.section)}</code></p>
            <pre style="white-space: pre-wrap; line-height: 1.4; margin: 0"
            >{lines}</pre>
            <details><summary>why</summary>{why}</details>"""
    display(HTML(html))


def own_times(averages):
    """Return {operation: milliseconds} of a profile, and whose time that is.

    `averages` are torch.profiler's. A kernel counts as the operation that started it,
    which has its time too. Without a GPU, or without CUPTI, a profile has no time of a
    GPU. Then the CPU's time counts.
    """
    operations = [one for one in averages if one.device_type == DeviceType.CPU]
    if any(one.self_device_time_total for one in operations):
        return {one.key: one.self_device_time_total / 1e3 for one in operations}, "GPU"
    return {one.key: one.self_cpu_time_total / 1e3 for one in operations}, "CPU"


def stream(command, **environment):
    """Run a command in the root of the repository and print what it prints, as it does.

    Raises RuntimeError where it fails; interrupting the cell ends all its processes.
    """
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )
    try:
        for line in child.stdout:
            print(line, end="", flush=True)
        status = child.wait()
    except KeyboardInterrupt:
        supervise.end(child.pid)
        raise
    if status:
        raise RuntimeError(f"the run failed with exit status {status}: see above")


@refusals_raised()
def run(stage, **settings):
    """Run a stage in processes of its own, as make would: run("04_ddp", NPROC=3).

    The settings are the variables of make. Raises RuntimeError where the run fails.
    """
    given = {name: os.environ[name] for name in INHERITED if os.environ.get(name)}
    given |= {"OUT": str(RUNS / stage), "DATA": str(mnist())}
    given |= {name: str(value) for name, value in settings.items()}
    plan = make_plan(stage, given, several=True)  # which NPROC was inherited for
    launch.check([plan])
    supervise.print_command(plan.environment, plan.command)
    stream(plan.command, **plan.environment)


def curve(*stages):
    """Draw the curves of stages that `run` has run, and say whether they are equal."""
    curves = {stage: compare.read(RUNS / stage / "metrics.csv") for stage in stages}
    lines, differ = compare.make_table(curves)
    print("\n".join(lines))
    plots.plot(curves)
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
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        stream(
            [*words, f"--nproc-per-node={int(line)}", str(path)],
            OMP_NUM_THREADS="1",
            CUDA_VISIBLE_DEVICES="",
            PYTHONPATH=str(ROOT),
            RESULT=str(RESULT),
            MNIST=str(mnist()),
        )
