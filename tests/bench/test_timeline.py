"""Promise: a timeline shows what each rank does in a step, in order."""

import json
import shlex

import pytest

from conftest import call
from tools.bench.timeline import read_spans
from tools.run.stages import find_stage

GATHER = "all-gather all-gather "
SCATTER = "reduce-scatter all-reduce "  # gloo makes the one of the other
RUNS = [  # make's variables, the number of ranks, and what begins in a step
    ("S=07_fsdp", 2, f"forward {GATHER}backward {GATHER}{2 * SCATTER}optimizer"),
    ("S=04_ddp NPROC=4", 4, "forward backward all-reduce optimizer"),
    ("S=9 ARGS='--micro-batches 1'", 2, "forward send receive backward optimizer"),
    ("S=6", 1, "forward backward optimizer"),
]


@pytest.mark.parametrize(
    ("words", "count", "step"), RUNS, ids=["fsdp", "ddp_on_four", "pipeline", "alone"]
)
def test_a_trace_of_each_rank_has_every_step(words, count, step, tmp_path):
    words = shlex.split(words)
    result = call(["make", "trace", f"OUT={tmp_path}", *words])
    assert result.returncode == 0, result.stderr
    stage = find_stage(words[0].removeprefix("S="))
    assert (tmp_path / f"trace_{stage}.png").stat().st_size > 10_000
    traces = sorted(tmp_path.glob("*.json"))
    assert len(traces) == count
    for rank, path in enumerate(traces):
        spans = sorted(read_spans(path, rank), key=lambda span: span.start)
        kinds = [span.kind for span in spans if span.kind != "data"]
        assert kinds.count("optimizer") == 5
        if rank == 0:
            assert " ".join(kinds).startswith(" ".join([step] * 5))
            assert kinds.count("evaluation") == 1


def test_what_a_gpu_repeats_counts_once(tmp_path):
    event = {"name": "forward", "ph": "X", "ts": 1.0, "dur": 2.0}
    categories = "user_annotation", "gpu_user_annotation", "kernel"
    events = [{**event, "cat": category} for category in categories]
    (tmp_path / "0.json").write_text(json.dumps({"traceEvents": events}))
    assert read_spans(tmp_path / "0.json", 3) == [(3, "forward", 1.0, 3.0)]
