"""Show where each rank's time goes: `make trace S=07_fsdp`.

Runs four steps of a stage under torch.profiler: it skips one, warms up in one, records
two and what follows. Each rank writes runs/trace_07_fsdp_0.json, which Perfetto opens.
From these files we print how long the two steps were in each entry, and draw
runs/trace_07_fsdp.png. GPUS, NPROC, OUT and ARGS work as in tools/bench/runs.py.
"""

import json
import os
from collections import Counter
from multiprocessing.util import Finalize
from pathlib import Path

import torch
from torch.optim import Optimizer
from torch.profiler import profile, record_function, schedule

from tools.bench import figures, runs
from tools.run.data import shown
from tools.run.stages import TRANSFORMER, find_stage, make_folder, refuse

# Numbers of training and test images, and flags.
FIRST_CURVE = (4 * 256, 256), "--hidden 1024 --batch-size 256 --epochs 1"
SECOND_CURVE = None, "--steps 4 --every 4"
SENT = "gloo:", "nccl"  # the beginnings of messages' names
KINDS = {  # part of the profiler's own label -> kind in the picture
    ":all_reduce": "all-reduce",  # of gloo or nccl
    ":send": "send",
    ":recv": "receive",
    "FSDP::all_gather (": "all-gather",
    "FSDP::post_backward_reduce": "reduce-scatter",
    "enumerate(DataLoader)": "data",
}


def labeled(function, name_of, after=lambda: None):
    """Return a method that runs under the label `name_of(self)`, and then `after()`."""

    def call(self, *arguments, **options):
        with record_function(name_of(self)):
            result = function(self, *arguments, **options)
        after()
        return result

    return call


def forward(module):
    """Return the label of a module's forward pass."""
    kind = "forward" if torch.is_grad_enabled() else "evaluation"
    return f"{kind} {type(module).__name__}"


def record(rank, name):
    """Profile and label this rank, and write the trace: NAME_0.json for rank 0."""
    path = f"{name}_{rank}.json"
    Path(path).write_text('{"traceEvents": []}')  # if there are too few steps
    profiler = profile(  # the CPU and any GPUs
        schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(path),
    )
    torch.nn.Module.__call__ = labeled(torch.nn.Module.__call__, forward)
    torch.Tensor.backward = labeled(torch.Tensor.backward, lambda _: "backward")
    label_step = Optimizer.profile_hook_step
    Optimizer.profile_hook_step = lambda _, step: labeled(
        label_step(step), lambda _: "optimizer", after=profiler.step
    )
    profiler.start()
    # A multiprocessing process exits without calling atexit functions.
    Finalize(None, profiler.stop, exitpriority=10)


def read(path):
    """Return a trace's entries in order, outer before inner, and which are labels.

    Perfetto drops a thread's entries that overlap, as messages between two ranks may.
    So they move to rows of their own in the file.
    """
    trace = json.loads(path.read_text())
    for event in trace["traceEvents"]:
        if event["name"] in ("gloo:send", "gloo:recv"):
            event["tid"] = event["name"]
    path.write_text(json.dumps(trace))
    entries = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    entries.sort(key=lambda entry: (entry["ts"], -entry["dur"]))
    # `gpu_user_annotation` repeats the labels for their kernels.
    return entries, [one for one in entries if one["cat"] == "user_annotation"]


def spans(labels):
    """Yield [kind, start, end] for the labels that the picture shows.

    A backward pass waits for its messages, but their labels often end later.
    """
    ends = Counter()  # of each kind so far
    for label in labels:
        kinds = [kind for text, kind in KINDS.items() if text in label["name"]]
        kind = [*kinds, label["name"].partition(" ")[0]][0]
        start, end = label["ts"], label["ts"] + label["dur"]
        if kind in figures.MESSAGES and start < ends["backward"]:
            end = min(end, ends["backward"])
        if kind in figures.MESSAGES or kind in figures.WORK and start >= ends[kind]:
            ends[kind] = end  # another one of this kind within it is not drawn
            yield [kind, start, end]


def spent(entries, steps):
    """Return a Counter of the microseconds in each entry of two steps, by its name.

    Each counts once: for the main thread's innermost entry, or for a message on its way
    if that entry doesn't compute. With GPUs, kernels replace the main thread's entries.
    """
    begin, _, end = [step["ts"] for step in steps]
    kernels = [one for one in entries if one["cat"] == "kernel"]
    work = kernels or [one for one in entries if one["tid"] == steps[0]["tid"]]
    computing = {one["name"] for one in work if kernels or "aten::" in one["name"]}
    now = ["idle"] * round(end - begin)  # in each microsecond
    for entry in [*work, *(one for one in entries if one["name"].startswith(SENT))]:
        name, start = entry["name"], entry["ts"] - begin
        times = [max(round(time), 0) for time in (start, start + entry["dur"])]
        for moment in range(len(now))[slice(*times)]:
            if not name.startswith(SENT):
                now[moment] = name
            elif now[moment] not in computing:
                now[moment] = f"waiting in {name}"
    return Counter(name.partition("#")[0] for name in now)


def longest(rank, found):
    """Return lines: a rank's ten longest entries, and how long it waits."""
    whole = found.total()
    waits = sum(found[name] for name in found if name.startswith(("waiting", "c10d::")))
    lines = [f"rank {rank}: two steps in {whole / 1000:.1f} ms"]
    lines[0] += f", {waits / whole:.0%} waiting for messages"
    for name, time in found.most_common(10):
        lines.append(f"{time / 1000:8.1f} ms {time / whole:4.0%}  {name[:60]}")
    return lines


def main(stage):
    """Trace the stage named by the user, or stage 4."""
    stage = find_stage(stage or "04_ddp")
    name = make_folder() / f"trace_{stage}"
    print(f"{stage}: running under a profiler ...", flush=True)
    settings = SECOND_CURVE if stage in TRANSFORMER.values() else FIRST_CURVE
    number = runs.run_stage(stage, *settings, (record, str(name)))
    paths = [Path(f"{name}_{rank}.json") for rank in range(number)]
    drawn, lines = [], []
    for rank, path in enumerate(paths):
        entries, labels = read(path)
        steps = [one for one in labels if one["name"].startswith("ProfilerStep#")]
        if len(steps) < 3:
            refuse(f"{stage} took fewer than four steps. Try a smaller --batch-size")
        lines += longest(rank, spent(entries, steps))
        if rank == 0:
            begin = round(steps[0]["ts"])
            borders = [round(step["ts"]) - begin for step in steps[1:]]
        for kind, *times in spans(labels):
            drawn.append([rank, kind, *(round(time) - begin for time in times)])
    print("\n".join(lines))
    title = f"{stage} {os.environ.get('ARGS', '')}".strip()
    found = drawn, borders, f"{title}: two steps and what follows"
    picture = name.with_suffix(".png")
    figures.draw_timeline(*found).savefig(picture, dpi=130)
    picture.with_suffix(".json").write_text(json.dumps([*found, lines]))
    print("wrote", *map(shown, [picture, *paths]))
