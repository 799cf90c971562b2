"""Draw what each device or process does, step by step: `python -m tools.bench.timeline 04_ddp`.

Runs a stage for some steps under torch.profiler on every rank. Writes runs/trace_STAGE.png
and a trace for each rank, runs/trace_STAGE_0.json, which https://ui.perfetto.dev opens.
Without two GPUs, stage 3 runs on a stand-in with two copies on the CPU, one after the other.
With GPUs the rows show when a process asks for the work; the trace has the kernels too.
"""

import json
import os
import sys
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.profiler import ProfilerActivity, profile, record_function

from tools.run import data, ranks
from tools.run.sample import cut
from tools.run.stages import DISTRIBUTED, ROOT, find, refuse, script

STEPS = 3  # that are drawn, from the middle of the run
FLAGS = ["--epochs", "1", "--hidden", "1024", "--batch-size", "256"]
IMAGES = 5 * 256
COLOURS = {
    "forward": "#1f6fb4", "backward": "#d9731a", "all-reduce": "#b3266b",
    "copy": "#8a6bbf", "replicate": "#c9a227", "scatter": "#2a8a5f", "gather": "#56b4a0",
    "optimizer": "#6b7580", "data": "#c5cbd1",
}  # fmt: skip


class Labels:
    """Named stretches of time in the trace: begin ends the one before in its row."""

    def __init__(self):
        self.open = {}

    def begin(self, row, name):
        self.end(row)
        self.open[row] = record_function(f"{row}|{name}")
        self.open[row].__enter__()

    def end(self, row):
        if row in self.open:
            self.open.pop(row).__exit__(None, None, None)


def half(module):
    """Return which half of stage 6's network a slice of its layers is, or None."""
    if type(module) is not nn.Sequential:
        return None
    return {3: "first half", 1: "second half"}.get(len(module))


def stand_in(labels, row):
    """Put in the place of nn.DataParallel one with two copies, with its steps labelled."""
    from tools.lab import standin

    class DataParallel(standin.DataParallel):
        def forward(self, images):
            labels.begin(row, "scatter")
            parts = images.chunk(2)
            labels.begin(row, "replicate")  # what moves the weights to each GPU
            for weights in self.module.parameters():
                weights.detach().clone()
            labels.end(row)
            outputs = []
            for copy, part in enumerate(parts):
                labels.begin(f"copy {copy}", "forward")
                outputs.append(self.module(part))
                labels.end(f"copy {copy}")
            labels.begin(row, "gather")
            result = standin.gather(outputs)
            labels.end(row)
            return result

    nn.DataParallel = DataParallel


def instrument(rank, stage, folder):
    """Have this process label what it does, and leave its trace in `folder`."""
    labels = Labels()
    row = f"rank {rank}" if stage in DISTRIBUTED else "process"
    gpus = torch.cuda.device_count()
    if stage == "03_dp" and gpus < 2:
        stand_in(labels, row)

    def where_is(module):  # the row of a module whose forward pass is drawn, or None
        if stage == "06_model_parallel":
            return half(module)
        return row if type(module).__name__ == "Net" and stage != "03_dp" else None

    def before(module, _):
        if where := where_is(module):
            labels.begin(where, "forward")

    def after(module, _, output):
        if where := where_is(module):
            labels.end(where)
            if where != row and output.requires_grad:
                other = {"first half": "second half", "second half": None}[where]
                output.register_hook(lambda _: backward_begins(where, other))

    def backward_begins(
        where, other
    ):  # the gradient of a half's output is there: its turn
        if other:
            labels.end(other)
        labels.begin(where, "backward")

    def backward(self, *args, original=torch.Tensor.backward, **options):
        if stage != "06_model_parallel":
            labels.begin(row, "backward")
        original(self, *args, **options)
        for name in row, "first half", "second half":
            labels.end(name)

    def moved(self, *args, original=torch.Tensor.to, **options):
        with record_function(f"{row}|copy"):
            return original(self, *args, **options)

    register_module_forward_pre_hook(before)
    register_module_forward_hook(after)
    torch.Tensor.backward = backward
    torch.Tensor.to = moved
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * bool(gpus)
    profiler = profile(activities=activities)
    profiler.__enter__()

    def leave():
        profiler.__exit__(None, None, None)
        profiler.export_chrome_trace(str(folder / f"{rank}.json"))

    Finalize(None, leave, exitpriority=10)


def stretches(path, rank):
    """Return (row, kind, start, end) of a trace, in microseconds."""
    found = []
    for event in json.loads(path.read_text())["traceEvents"]:
        name, start = event.get("name", ""), event.get("ts", 0)
        if event.get("ph") != "X":
            continue
        row = f"rank {rank}"
        if "|" in name:
            row, kind = name.split("|")
        elif name.startswith(
            ("gloo:all_reduce", "nccl:all_reduce", "ncclDevKernel_AllReduce")
        ):
            kind = "all-reduce"
        elif name.startswith("Optimizer.step"):
            kind = "optimizer"
        elif name.startswith("enumerate(DataLoader)"):
            kind = "data"
        else:
            continue
        found.append((row, kind, start, start + event["dur"]))
    return found


def window(found):
    """Return the (start, end) of STEPS steps in the middle of a rank's stretches."""
    ends = sorted(end for _, kind, _, end in found if kind == "optimizer")
    middle = max((len(ends) - STEPS) // 2, 1)
    return ends[middle - 1], ends[min(middle - 1 + STEPS, len(ends) - 1)]


def draw(stage, traces, path):
    """Draw the timeline of the ranks' traces, a row for each process or half."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    found = [stretches(trace, rank) for rank, trace in enumerate(traces)]
    begin, end = window(found[0])
    rows, kinds, drawn = [], [], []
    for rank in found:
        for row, kind, start, stop in sorted(
            rank, key=lambda s: s[3] - s[2], reverse=True
        ):
            alone = stage not in DISTRIBUTED and row.startswith("rank")
            row = "process" if alone else row
            if stop > begin and start < end and kind in COLOURS:
                drawn.append((row, kind, max(start, begin), min(stop, end)))
                rows.append(row)
                kinds.append(kind)
    rows = sorted(set(rows), key=lambda row: (row != "process", row))
    figure, axes = plt.subplots(
        figsize=(11, 1.4 + 0.75 * len(rows)), layout="constrained"
    )
    for row, kind, start, stop in drawn:
        place, height = rows.index(row), 0.8
        if kind == "all-reduce":  # beside the backward pass that it overlaps
            place, height = place + 0.28, 0.24
        axes.barh(place, (stop - start) / 1000, left=(start - begin) / 1000, height=height,
                  color=COLOURS[kind], edgecolor="white", linewidth=0.3)  # fmt: skip
    axes.set(yticks=range(len(rows)), yticklabels=rows, xlim=(0, (end - begin) / 1000),
             xlabel="milliseconds; white: idle")  # fmt: skip
    axes.invert_yaxis()
    handles = [Patch(color=COLOURS[k], label=k) for k in COLOURS if k in kinds]
    figure.legend(
        handles=handles, loc="outside upper center", ncols=len(handles), fontsize=9
    )
    note = ""
    if stage == "03_dp" and torch.cuda.device_count() < 2:
        note = " (a stand-in: two copies on the CPU, one after the other)"
    axes.set_title(f"{stage}: {STEPS} steps{note}", fontsize=10)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return rows, sorted(set(kinds))


def trace(stage, out):
    """Run a stage, write its traces and its timeline to `out`; return what was drawn."""
    out.mkdir(parents=True, exist_ok=True)
    processes = (torch.cuda.device_count() or 2) if stage in DISTRIBUTED else None
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        root = cut(folder / "data", IMAGES, 100)
        words = [script(stage), "--data", root, "--out", folder / "out", *FLAGS]
        prepare = instrument, stage, folder
        result = ranks.run(words, processes, timeout=300, prepare=prepare, gpus=True)
        if result.returncode:
            refuse(f"{stage} failed:\n{result.stderr[-2000:]}")
        kept = []
        for rank in range(processes or 1):
            kept.append(out / f"trace_{stage}_{rank}.json")
            kept[-1].write_bytes((folder / f"{rank}.json").read_bytes())
    picture = out / f"trace_{stage}.png"
    return *draw(stage, kept, picture), [picture, *kept]


def main():
    os.chdir(ROOT)
    names = [name for name in sys.argv[1:] if name] or ["3", "4", "5", "6"]
    for name in names:
        stage = find(name)
        rows, kinds, paths = trace(stage, ROOT / "runs")
        print(f"{stage}: {', '.join(rows)}: {', '.join(kinds)}")
        print("  " + ", ".join(str(data.shown(path)) for path in paths))


if __name__ == "__main__":
    from tools.bench import timeline as module  # noqa: PLW0406 - ranks import it by this name

    module.main()
