"""Draw a timeline of each rank's work: `make trace S=04_ddp`.

Runs a stage for five steps under torch.profiler. Writes a trace for each rank,
runs/trace_04_ddp_0.json, to open in https://ui.perfetto.dev, and a picture of the last
steps and the evaluation, runs/trace_04_ddp.png, with its data in a .json file. GPUS,
NPROC, OUT and ARGS work as in tools/bench/runs.py.

Messages are drawn over the work that waits for them. `loss.backward()` returns when the
gradients have been exchanged, so we end its messages there at the latest: the profiler
closes their labels in another thread, often milliseconds later. With GPUs, the rows
show when a process launches work; the trace also contains the kernels.
"""

import json
import os
from typing import NamedTuple

from tools.bench import figures, runs
from tools.run.data import shown
from tools.run.stages import TRANSFORMER, find_stage, make_folder

INSTRUMENT = "tools.bench.timeline_rank:instrument"  # imports PyTorch in the ranks
STEPS = 3  # drawn
FLAGS = "--hidden 1024 --batch-size 256 --epochs 1"
IMAGES = 5 * 256, 256  # training, test
OF_SECOND_CURVE = "--steps 5 --every 5"  # the second curve has no evaluation
PROFILED = {  # part of the profiler's own label -> kind
    ":all_reduce": "all-reduce",  # of gloo or nccl
    ":send": "send",
    ":recv": "receive",
    "FSDP::all_gather (": "all-gather",
    "FSDP::post_backward_reduce": "reduce-scatter",
    "Optimizer.step": "optimizer",
    "enumerate(DataLoader)": "data",
}


class Span(NamedTuple):
    """One kind of work on a rank, with times in microseconds."""

    rank: int
    kind: str
    start: float
    end: float


def read_spans(path, rank):
    """Return the spans in a rank's trace."""
    spans = []
    for event in json.loads(path.read_text())["traceEvents"]:
        # `gpu_user_annotation` repeats the labels for their kernels.
        if event.get("cat") != "user_annotation":
            continue
        kind = event["name"]
        for text, profiled in PROFILED.items():
            if text in kind:
                kind = profiled
        if kind in figures.KINDS:
            spans.append(Span(rank, kind, event["ts"], event["ts"] + event["dur"]))
    return end_in_backward(spans)


def end_in_backward(spans):
    """Return the spans; messages end with their backward pass at the latest."""
    passes = [span for span in spans if span.kind == "backward"]
    found = []
    for span in spans:
        if span.kind in figures.MESSAGES:
            for one in passes:
                if one.start <= span.start <= one.end:
                    span = span._replace(end=min(span.end, one.end))
        found.append(span)
    return found


def last_steps(spans):
    """Return the spans of the last steps, and the times when rank 0 ended them.

    Times are in microseconds from the end of the previous step.
    """
    ends = [one.end for one in spans if (one.rank, one.kind) == (0, "optimizer")]
    start, *borders = sorted(ends)[-STEPS - 1 :]
    shown = []
    for span in spans:
        if span.end > start:
            times = round(span.start - start), round(span.end - start)
            shown.append(Span(span.rank, span.kind, *times))
    return shown, [round(end - start) for end in borders]


def trace(stage, out):
    """Run a stage; write its picture and its traces to `out`; return their paths."""
    print(f"{stage}: running under a profiler ...", flush=True)
    pattern = out / f"trace_{stage}_RANK.json"
    prepare = INSTRUMENT, str(pattern)
    is_second = stage in TRANSFORMER.values()
    images, flags = (None, OF_SECOND_CURVE) if is_second else (IMAGES, FLAGS)
    number = runs.run_stage(stage, images, flags, prepare)
    spans = []
    traces = []
    for rank in range(number):
        traces.append(pattern.with_name(pattern.name.replace("RANK", str(rank))))
        spans += read_spans(traces[-1], rank)
    title = f"{stage} {os.environ.get('ARGS', '')}".strip()
    title += f": {STEPS} steps" + ("" if is_second else " and the evaluation")
    found = last_steps(spans)
    picture = out / f"trace_{stage}.png"
    figures.draw_timeline(*found, title).savefig(picture, dpi=130)
    picture.with_suffix(".json").write_text(json.dumps(found))
    return [picture, *traces]


def main(stage):
    """Trace the stage named by the user, or stage 4."""
    paths = trace(find_stage(stage or "04_ddp"), make_folder())
    print("wrote", *map(shown, paths))
