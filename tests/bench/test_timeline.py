"""Promise: a timeline shows what each rank does in a step, in order."""

import json

import pytest

from conftest import ROOT, call
from tools.bench import timeline

GATHER = "all-gather all-gather "
SCATTER = "reduce-scatter all-reduce "  # gloo implements one with the other


def assert_steps(folder, count, step):
    """Assert that `count` traces have five steps and that rank 0's match `step`."""
    traces = sorted(folder.glob("trace_*_[0-9].json"))
    assert len(traces) == count
    for rank, path in enumerate(traces):
        spans = timeline.read_spans(path, rank)
        spans.sort(key=lambda span: span.start)
        kinds = [span.kind for span in spans if span.kind != "data"]
        assert kinds.count("optimizer") == 5
        if rank == 0:
            assert " ".join(kinds).startswith(" ".join([step] * 5))
            assert kinds.count("evaluation") == 1


def test_the_last_steps_are_those_of_rank_0_and_each_work_is_drawn_once(tmp_path):
    """The profiler repeats its labels for GPU kernels."""
    events = []
    for kind in "user_annotation", "gpu_user_annotation", "kernel":
        for step in range(5):
            name = "Optimizer.step#SGD.step"
            events.append({"cat": kind, "name": name, "ts": 10 * step, "dur": 4})
    (tmp_path / "0.json").write_text(json.dumps({"traceEvents": events}))
    spans = timeline.read_spans(tmp_path / "0.json", 0)
    assert len(spans) == 5
    later = [span._replace(rank=1, end=span.end + 1) for span in spans]
    shown, borders = timeline.last_steps(spans + later)
    assert borders == [10, 20, 30]  # from the end of the step before
    assert shown[:3] == [(0, "optimizer", at, at + 4) for at in (6, 16, 26)]
    assert len(shown) == 3 + 4  # rank 1 was still in its step


def test_no_exchange_of_gradients_is_drawn_beyond_its_backward_pass(tmp_path):
    """The profiler closes its label late, although `backward` waited for it."""
    events = []
    for name, start, end in ("backward", 0, 9), ("gloo:all_reduce", 5, 30):
        one = {"cat": "user_annotation", "name": name, "ts": start, "dur": end - start}
        events.append(one)
    (tmp_path / "0.json").write_text(json.dumps({"traceEvents": events}))
    spans = timeline.read_spans(tmp_path / "0.json", 0)
    assert [one.kind for one in spans] == ["backward", "all-reduce"]
    assert [one.end for one in spans] == [9, 9]
    drawn, _ = json.loads((ROOT / "tools/bench/traced.json").read_text())
    whole = [timeline.Span(*span) for span in drawn]
    for rank in 0, 1:
        ranks = [span for span in whole if span.rank == rank]
        assert "all-reduce" in {span.kind for span in ranks}
        assert timeline.end_in_backward(ranks) == ranks


def test_a_trace_of_each_rank_has_every_step(tmp_path):
    timeline.trace("07_fsdp", tmp_path)
    step = f"forward {GATHER}backward {GATHER}{2 * SCATTER}optimizer"
    assert_steps(tmp_path, 2, step)


@pytest.mark.slow
def test_make_trace_draws_a_stage_on_so_many_ranks(tmp_path):
    result = call(["make", "trace", f"OUT={tmp_path}", "S=4", "NPROC=4"])
    assert result.returncode == 0, result.stderr
    assert "\n04_ddp: 4 processes on cpu (gloo), 256 images" in result.stdout
    assert (tmp_path / "trace_04_ddp.png").stat().st_size > 10_000
    assert_steps(tmp_path, 4, "forward backward all-reduce optimizer")
