"""Draw what each device or process does, step by step: `make trace S=04_ddp`.

Runs a stage for some steps under torch.profiler on every rank. Writes
runs/trace_STAGE.png, or to OUT, and a trace for each rank, trace_STAGE_0.json, which
https://ui.perfetto.dev opens. GPUS=0,1 or cpu says on what. Two stages run on a
stand-in, and the title says so: stage 3 without two GPUs, and stage 6, whose second half
would be too short to be seen. With GPUs the rows show when a process asks for the work;
the trace has the kernels too. `loss.backward()` returns after the exchange of the
gradients: the row says "backward" until all of them are computed and the last exchange
has begun, and "waiting" from then on. ARGS are further flags of the script:
ARGS="--micro-batches 8".
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tools.bench import figures
from tools.bench.benchmark import take_gpus
from tools.bench.timeline_rank import instrument, row_name, standin
from tools.run import data, launch, ranks
from tools.run.sample import cut
from tools.run.stages import ROOT, find, refuse, refuse_unwritable, script

STEPS = 3  # that are drawn, from the middle of the run
FLAGS = {"EPOCHS": "1", "ARGS": "--hidden 1024 --batch-size 256"}
IMAGES = 5 * 256, 1000  # to train on, five steps, and to evaluate
SCATTER = "reduce-scatter"
EXCHANGES = "all-reduce", SCATTER  # of gradients
AUTOGRAD = "autograd::engine::evaluate_function"  # the computing of a backward pass
PROFILED = {  # how the names of the profiler's own labels begin -> kind
    "gloo:all_reduce": "all-reduce", "nccl:all_reduce": "all-reduce",
    "gloo:send": "send", "nccl:send": "send",
    "gloo:recv": "receive", "nccl:recv": "receive",
    "FSDP::all_gather (": "all-gather", "FSDP::post_backward_reduce": SCATTER,
    "Optimizer.step": "optimizer", "enumerate(DataLoader)": "data",
}  # fmt: skip


def read_spans(path, process_row):
    """Return the (row, kind, start, end) of a trace, in microseconds.

    Of labels on the CPU alone: `gpu_user_annotation` repeats them, for their kernels.
    gloo makes a reduce-scatter of an all-reduce, which then does not count.
    """
    found = []
    computed = []
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["name"].startswith(AUTOGRAD) and "Accumulate" not in event["name"]:
            computed.append((event["ts"], event["ts"] + event["dur"]))
        if event.get("cat") != "user_annotation":
            continue
        row, _, kind = event["name"].rpartition("|")
        kinds = (PROFILED[start] for start in PROFILED if kind.startswith(start))
        kind = next(kinds, kind)
        if kind in figures.KINDS:
            end = event["ts"] + event["dur"]
            found.append((row or process_row, kind, event["ts"], end))
    scattered = [(start, end) for _, kind, start, end in found if kind == SCATTER]
    found = [
        span for span in found
        if span[1] != "all-reduce" or not any(a < span[2] < b for a, b in scattered)
    ]  # fmt: skip
    return [part for span in found for part in split_backward(span, found, computed)]


def split_backward(span, spans, computed):
    """Return a span, or in place of a backward pass its computing and its waiting.

    A backward pass waits where an exchange goes on after autograd's last operation;
    `computed` has the (start, end) of these operations. What comes between the two,
    such as copying a gradient to its bucket, is not waiting.
    """
    row, kind, start, end = span
    ends = [last for first, last in computed if start <= first < end]
    if kind != "backward" or not ends:
        return [span]
    last = min(max(ends), end)
    late = [s for s in spans if s[1] in EXCHANGES and s[2] < end and s[3] > last]
    if not late:
        return [span]
    waits = max(last, min(message[2] for message in late))
    return [(row, "backward", start, waits), (row, "waiting", waits, end)]


def window(stage, spans):
    """Return where STEPS steps of a rank's spans begin and end, in microseconds.

    Those in the middle; in stage 5 the last ones, and the evaluation that follows.
    """
    ends = sorted(end for _, kind, _, end in spans if kind == "optimizer")
    if stage == "05_ddp_inference":
        last = max(end for _, kind, _, end in spans
                   if kind in ("evaluation", "all-reduce"))  # fmt: skip
        return [*ends[-STEPS - 1 :], last]
    middle = max((len(ends) - STEPS) // 2, 1)
    return ends[middle - 1 : middle + STEPS]


def trace(stage, out):
    """Run a stage; write its traces and its timeline to `out`.

    Returns (rows of the timeline, kinds of work, paths: the picture, then the traces).
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        given = {"DATA": str(cut(folder / "data", *IMAGES)), "OUT": str(folder)}
        given["GPUS"] = os.environ.get("GPUS", "")
        more = os.environ.get("ARGS", "")
        given |= {**FLAGS, "ARGS": f"{FLAGS['ARGS']} {more}"}
        _, words = launch.plan(stage, given)
        number = [word.partition("=")[2] for word in words if "--nproc-per-" in word]
        processes = int(number[0]) if number else None
        words = words[words.index(str(data.shown(script(stage)))) :]
        prepare = instrument, stage, folder
        result = ranks.run(words, processes, timeout=300, prepare=prepare, gpus=True)
        if result.returncode:
            refuse(f"{stage} failed:\n{result.stderr[-2000:]}")
        traces = [out / f"trace_{stage}_{n}.json" for n in range(processes or 1)]
        for rank, path in enumerate(traces):
            shutil.copyfile(folder / f"{rank}.json", path)
    spans = [read_spans(path, row_name(stage, n)) for n, path in enumerate(traces)]
    borders = window(stage, spans[0])
    title = f"{stage} {more}".strip() + f": {STEPS} steps"
    if stage == "05_ddp_inference":
        title += " and the evaluation"
    if instead := standin(stage):
        title += f" (a stand-in: {instead})"
    if launch.count_gpus() and stage != "01_cpu":
        title += " (when each process asks for the work)"
    picture = out / f"trace_{stage}.png"
    spans = [span for rank in spans for span in rank]
    drawn = figures.draw_timeline(spans, borders, title, picture)
    return *drawn, [picture, *traces]


def main():
    os.chdir(ROOT)
    take_gpus()
    refuse_unwritable(Path(os.environ.get("OUT") or "runs"), "name a folder, OUT=DIR")
    for name in [name for name in sys.argv[1:] if name] or ["3", "4", "5", "6"]:
        stage = find(name)
        rows, kinds, paths = trace(stage, Path(os.environ.get("OUT") or "runs"))
        print(f"{stage}: {', '.join(rows)}: {', '.join(kinds)}")
        print("  " + ", ".join(str(data.shown(path)) for path in paths))


if __name__ == "__main__":
    main()
