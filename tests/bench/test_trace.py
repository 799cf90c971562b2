"""Promise: a trace shows where each rank's time goes, and Perfetto shows all of it."""

import json

import pytest

from conftest import call
from tools.bench import trace

SCATTER = "reduce-scatter all-reduce"  # gloo implements one with the other
GATHER = "all-gather all-gather"
FSDP = f"data forward {GATHER} backward {GATHER} {SCATTER} {SCATTER} optimizer "


def entry(name, start, end, thread=0, kind="user_annotation"):
    """Return a trace's entry between two times in microseconds."""
    return {"name": name, "ts": start, "dur": end - start, "tid": thread, "cat": kind}


def assert_traced(folder, stage, count, step):
    """Assert what `count` ranks left, with two such steps in the picture of rank 0."""
    drawn, _, _, lines = json.loads((folder / f"trace_{stage}.json").read_text())
    assert (folder / f"trace_{stage}.png").stat().st_size > 10_000
    assert len(list(folder.glob("trace_*_[0-9].json"))) == count
    for rank in range(count):
        path = folder / f"trace_{stage}_{rank}.json"
        written = path.read_text()
        entries, labels = trace.read(path)
        assert path.read_text() == written  # nothing to move any more
        ends = {}  # of a thread's open entries
        for one in entries:
            assert one.keys() >= {"ph", "ts", "dur", "pid", "tid", "name"}
            outer = [end for end in ends.get(one["tid"], []) if end > one["ts"]]
            ends[one["tid"]] = [*outer, one["ts"] + one["dur"]]
            assert min(ends[one["tid"]]) == ends[one["tid"]][-1]  # or Perfetto drops it
        kinds = [kind for kind, *_ in trace.spans(labels)]
        assert kinds == [kind for number, kind, *_ in drawn if number == rank]
        assert rank or " ".join(kinds).startswith(2 * step)
        title, *rows = lines[11 * rank :][:11]
        times = [float(row.split()[0]) for row in rows]
        assert times == sorted(times, reverse=True)
        assert 0 < sum(times) < float(title.split()[5]) + 1  # each is rounded


def test_each_moment_counts_once_and_waiting_is_an_entry():
    steps = [entry(f"ProfilerStep#{n}", 10 * n, 10 * n + 10) for n in (2, 3, 4)]
    work = [*steps, entry("aten::linear", 24, 30), entry("aten::mm", 26, 29)]
    sent = entry("gloo:send", 22, 29, 1), entry("gloo:recv", 35, 60, 1)
    found = trace.spent([*work, *sent], steps)
    waits = {"waiting in gloo:send": 2, "waiting in gloo:recv": 5}
    assert found == {"ProfilerStep": 7, "aten::linear": 3, "aten::mm": 3} | waits
    assert trace.longest(0, found)[0].endswith(", 35% waiting for messages")
    kernels = entry("gemm", 21, 30, 7, "kernel"), entry("nccl", 25, 33, 8, "kernel")
    on_gpu = {"gemm": 9, "waiting in nccl": 3, "idle": 8}
    assert trace.spent([*work, *kernels], steps) == on_gpu


def test_the_picture_shows_messages_until_the_end_of_the_backward_pass():
    labels = entry("backward", 0, 9), entry("gloo:all_reduce", 5, 30)
    assert [*trace.spans(labels)] == [["backward", 0, 9], ["all-reduce", 5, 9]]


@pytest.mark.parametrize(("stage", "step"), [("07_fsdp", FSDP), ("09_pipeline", "")])
def test_perfetto_opens_each_ranks_trace(stage, step, tmp_path, monkeypatch):
    monkeypatch.setenv("OUT", str(tmp_path))
    trace.main(stage)
    assert_traced(tmp_path, stage, 2, step)


@pytest.mark.slow
def test_make_trace_draws_a_stage_on_so_many_ranks(tmp_path):
    result = call(["make", "trace", f"OUT={tmp_path}", "S=4", "NPROC=4"])
    assert result.returncode == 0, result.stderr
    assert "\n04_ddp: 4 processes on cpu (gloo), 256 images" in result.stdout
    assert_traced(tmp_path, "04_ddp", 4, "data forward backward all-reduce optimizer ")
