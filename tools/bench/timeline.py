"""Draw what each device or process does, step by step: `make trace S=04_ddp`.

Runs a stage for some steps under torch.profiler on every rank. Writes
runs/trace_STAGE.png, or to OUT, and a trace for each rank, trace_STAGE_0.json, which
https://ui.perfetto.dev opens. GPUS=0,1 or cpu says on what; ARGS are further flags of
the script: ARGS="--micro-batches 8".

Stage 3 needs two GPUs. Stage 6 runs with a larger last layer: else its second half
would be too short to be seen. With GPUs the rows show when a process launches the work;
the trace has the kernels too. `loss.backward()` returns after the exchange of the
gradients. The row says "backward" until the last all-reduce begins, when all of them
are computed, and "waiting" from then on.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

from tools.bench import figures
from tools.bench.benchmark import take_gpus
from tools.bench.timeline_rank import BACKWARD_BEGINS, instrument
from tools.run import data, gpus, ranks
from tools.run.plan import make_plan
from tools.run.sample import cut
from tools.run.stages import (
    CPU_PROCESSES,
    ROOT,
    find_stage,
    refuse,
    refuse_unwritable,
)

STEPS = 3  # that are drawn
FLAGS = "--hidden 1024 --batch-size 256"
IMAGES = 5 * 256, 1000  # to train on, five steps, and to evaluate
NOTES = {  # of the titles
    "05_ddp_inference": " and the evaluation",
    "06_model_parallel": " (with a larger last layer: as much work as the first)",
}
PROFILED = {  # what the names of the profiler's own labels have in them -> kind
    ":all_reduce": "all-reduce",  # of gloo or nccl
    ":send": "send",
    ":recv": "receive",
    "FSDP::all_gather (": "all-gather",
    "FSDP::post_backward_reduce": "reduce-scatter",
    "Optimizer.step": "optimizer",
    "enumerate(DataLoader)": "data",
}


def read_spans(path, process_row):
    """Return the (row, kind, start, end) of a trace, in microseconds.

    Of labels on the CPU alone: `gpu_user_annotation` repeats them, for their kernels.
    """
    spans = []
    begins = []  # (time, row) where the backward pass of a half of the model begins
    for event in json.loads(path.read_text())["traceEvents"]:
        if event.get("cat") != "user_annotation":
            continue
        row, _, kind = event["name"].rpartition("|")
        for text, profiled in PROFILED.items():
            if text in kind:
                kind = profiled
        if kind == BACKWARD_BEGINS:
            begins.append((event["ts"], row))
        if kind in figures.KINDS:
            end = event["ts"] + event["dur"]
            spans.append((row or process_row, kind, event["ts"], end))
    spans = cleaned(spans)
    found = []
    for span in spans:
        if span[1] == "backward":
            found += backward_parts(span, spans, begins)
        else:
            found.append(span)
    return found


def cleaned(spans):
    """Return spans with each all-reduce as its rank sees it, not as gloo's thread does.

    Without those by which gloo does a reduce-scatter. One that a backward pass begins
    ends with it at the latest, but a busy thread notes that later.
    """
    found = []
    for row, kind, start, end in spans:
        if kind == "all-reduce":
            around = {}  # kind of a span in which it begins -> when that ends
            for _, other, first, last in spans:
                if first < start < last:
                    around[other] = last
            if "reduce-scatter" in around:
                continue
            end = min(end, around.get("backward", end))
        found.append((row, kind, start, end))
    return found


def backward_parts(span, spans, begins):
    """Return a backward pass, its waiting, and the backward passes of the halves.

    It waits once its last all-reduce has begun. A half's pass ends where the next
    begins.
    """
    row, _, start, end = span
    reduced = []
    for _, kind, begin, _ in spans:
        if kind == "all-reduce" and start <= begin < end:
            reduced.append(begin)
    waits = max(reduced, default=end)
    found = [(row, "backward", start, waits)]
    if reduced:
        found.append((row, "waiting", waits, end))
    for begin, half in sorted(begins, reverse=True):
        if start <= begin < end:
            found.append((half, "backward", begin, end))
            end = begin
    return found


def window(stage, spans):
    """Return where the last STEPS steps of a rank begin and end, in microseconds.

    In stage 5 the evaluation follows, up to its all-reduce.
    """
    ends = sorted(end for _, kind, _, end in spans if kind == "optimizer")
    borders = ends[-STEPS - 1 :]
    if stage == "05_ddp_inference":
        borders.append(max(end for _, kind, _, end in spans if kind == "all-reduce"))
    return borders


def profile_stage(stage, out):
    """Run a stage; return the paths of its traces in `out`, one of each rank."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "DATA": str(cut(Path(folder) / "data", *IMAGES)),
            "OUT": folder,
            "GPUS": os.environ.get("GPUS", ""),
            "EPOCHS": "1",
            "ARGS": f"{FLAGS} {os.environ.get('ARGS', '')}",
        }
        plan = make_plan(stage, settings)
        paths = []
        for rank in range(plan.processes or 1):
            paths.append(out.absolute() / f"trace_{stage}_{rank}.json")
        words = [plan.script, *plan.flags]
        options = {"prepare": (instrument, stage, paths), "gpus": True}
        result = ranks.run(words, plan.processes, timeout=300, **options)
    if result.returncode:
        refuse(f"{stage} failed:\n{result.stderr[-2000:]}")
    return paths


def headline(stage):
    """Return the title of a stage's timeline."""
    title = f"{stage} {os.environ.get('ARGS', '')}".strip() + f": {STEPS} steps"
    title += NOTES.get(stage, "")
    if gpus.count_gpus() and stage != "01_cpu":
        title += " (when each process launches the work)"
    return title


def trace(stage, out):
    """Run a stage; write its timeline and its traces to `out`; return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    traces = profile_stage(stage, out)
    spans = []
    for rank, path in enumerate(traces):
        row = f"rank {rank}" if stage in CPU_PROCESSES else "process"
        spans.append(read_spans(path, row))
    borders = window(stage, spans[0])
    picture = out / f"trace_{stage}.png"
    every = [span for of_rank in spans for span in of_rank]
    figures.draw_timeline(every, borders, headline(stage), picture)
    return [picture, *traces]


def main():
    os.chdir(ROOT)
    take_gpus()
    out = Path(os.environ.get("OUT") or "runs")
    refuse_unwritable(out, "name a folder, OUT=DIR")
    named = " ".join(sys.argv[1:]) or "3 4 5 6"
    for stage in map(find_stage, named.split()):
        if stage == "03_dp" and gpus.count_gpus() < 2:
            print("03_dp: not drawn: nn.DataParallel does nothing without two GPUs")
            continue
        paths = [str(data.shown(path)) for path in trace(stage, out)]
        print(f"{stage}: {', '.join(paths)}")


if __name__ == "__main__":
    main()
