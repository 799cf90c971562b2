"""Promise: a timeline shows what happened in a step, and when."""

import json
import sys

import numpy as np
import pytest
import torch
from matplotlib import image
from matplotlib.colors import to_rgb
from torch import nn
from torch.profiler import profile

from tools.bench import figures, timeline
from tools.bench.timeline_rank import DATA_PARALLEL, LargeLayer, add_label


def overlap(a, b):
    return a[2] < b[3] and b[2] < a[3]


def of_kind(spans, kind):
    return [span for span in spans if span[1] == kind]


def test_a_timeline_shows_every_kind_that_its_legend_names(tmp_path):
    """One µs of a second too, and a long all-reduce; nothing outside its borders."""
    spans = [
        ("rank 0", "forward", 0, 9e5),
        ("rank 0", "copy", 5e5, 5e5 + 1),
        ("rank 0", "all-reduce", -1, 9e5),
        ("rank 0", "send", -9, -1),
        ("rank 1", "backward", 1e6 + 1, 2e6),
    ]
    path = tmp_path / "timeline.png"
    rows, kinds = figures.draw_timeline(spans, [0, 7e5, 1e6], "", path)
    assert (rows, kinds) == (["rank 0"], ["all-reduce", "copy", "forward"])
    picture = image.imread(path)[..., :3]
    below_legend = picture[len(picture) // 3 :]
    for color in (*(figures.KINDS[kind] for kind in kinds), "black"):
        distance = np.abs(below_legend - to_rgb(color)).max(axis=-1)
        assert (distance < 0.01).sum() > 50, color


def test_timeline_of_ddp_waits_for_the_all_reduce(tmp_path, monkeypatch):
    """Nothing overlaps, since all gradients are in one bucket, which is full last.

    On as many ranks as launch takes: of three GPUs, two that can share a batch.
    """
    monkeypatch.setattr(timeline.gpus, "count_gpus", lambda: 3)
    rows, kinds, paths = timeline.trace("04_ddp", tmp_path)
    assert rows == ["rank 0", "rank 1"]
    expected = {"forward", "backward", "waiting", "all-reduce", "optimizer", "copy"}
    assert expected <= set(kinds)
    assert [path.suffix for path in paths] == [".png", ".json", ".json"]
    assert paths[0].stat().st_size > 10_000
    for rank, path in enumerate(paths[1:]):
        spans = timeline.read_spans(path, f"rank {rank}")
        passes = of_kind(spans, "backward")
        waits = of_kind(spans, "waiting")
        reduced = of_kind(spans, "all-reduce")
        assert len(passes) == len(waits) == 5
        for computing, waiting in zip(passes, waits, strict=True):
            (exchange,) = [span for span in reduced if overlap(waiting, span)]
            assert exchange[2] == waiting[2] == computing[3]
            # A busy machine may note late that the one before has ended.
            began = [span for span in reduced if computing[2] <= span[2] < computing[3]]
            assert began == []


def test_timeline_of_model_parallel_takes_turns(tmp_path):
    rows, _, paths = timeline.trace("06_model_parallel", tmp_path)
    assert rows == ["process", "first half", "second half"]
    spans = timeline.read_spans(paths[1], "process")
    first = [span for span in spans if span[0] == "first half"]
    second = [span for span in spans if span[0] == "second half"]
    for half in first, second:
        assert len(of_kind(half, "forward")) == 5
        assert len(of_kind(half, "backward")) == 5
    assert not [one for one in first for other in second if overlap(one, other)]
    weights = []
    for network in nn.Linear(784, 1024), LargeLayer(1024, 10):
        weights.append(sum(map(torch.Tensor.numel, network.parameters())))
    assert weights[1] == pytest.approx(weights[0], rel=0.02)


def test_timeline_of_stage_5_ends_with_the_evaluation_of_every_rank(tmp_path):
    rows, kinds, paths = timeline.trace("05_ddp_inference", tmp_path)
    assert rows == ["rank 0", "rank 1"]
    assert "evaluation" in kinds
    for path in paths[1:]:
        spans = timeline.read_spans(path, "")
        *_, step, end = timeline.window("05_ddp_inference", spans)
        after = []
        for _, kind, first, last in sorted(spans, key=lambda span: span[2]):
            if first > step and last <= end:
                after.append(kind)
        assert after.count("evaluation") == 1
        assert after[-1] == "all-reduce"
        assert "backward" not in after


INSIDE = {  # stage -> pass -> how many messages of each kind begin in it
    "07_fsdp": {
        "forward": {"all-gather": 2},
        "backward": {"all-gather": 2, "reduce-scatter": 2},
    },
    "08_tensor_parallel": {"forward": {"all-reduce": 1}, "backward": {}},
    "09_pipeline": {"forward": {"send": 1}, "backward": {}},
}


@pytest.mark.parametrize("stage", INSIDE)
def test_timelines_beyond_show_what_moves_in_each_pass(stage, tmp_path, monkeypatch):
    """And with two micro-batches there are two passes in each of the five steps."""
    pieces = 2 if stage == "09_pipeline" else 1
    if pieces == 2:
        monkeypatch.setenv("ARGS", "--micro-batches 2")
    rows, _, paths = timeline.trace(stage, tmp_path)
    assert rows == ["rank 0", "rank 1"]
    spans = timeline.read_spans(paths[1], "rank 0")
    messages = {"all-gather", "reduce-scatter", "all-reduce", "send", "receive"}
    for kind, expected in INSIDE[stage].items():
        passes = of_kind(spans, kind)
        assert len(passes) == 5 * pieces
        for _, _, begin, end in passes:
            if stage == "08_tensor_parallel" and kind == "forward":
                # the loss waits for its all-reduce, which may begin after the pass
                end = min(s[2] for s in of_kind(spans, "backward") if s[2] > begin)
            seen = [s[1] for s in spans if s[1] in messages and begin <= s[2] < end]
            assert {name: seen.count(name) for name in seen} == expected


def test_stage_3_is_drawn_with_two_gpus_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["timeline", "3"])
    timeline.main()
    assert capsys.readouterr().out.startswith("03_dp: not drawn")
    drawn = lambda stage, out: (["process"], ["forward"], [])
    monkeypatch.setattr(timeline, "trace", drawn)
    monkeypatch.setattr(timeline.gpus, "count_gpus", lambda: 2)
    timeline.main()
    assert capsys.readouterr().out.startswith("03_dp: process: forward")


def test_a_title_says_what_the_timeline_shows(monkeypatch):
    assert timeline.headline("04_ddp") == "04_ddp: 3 steps"
    larger = "06_model_parallel: 3 steps (with a larger last layer: "
    assert timeline.headline("06_model_parallel").startswith(larger)
    monkeypatch.setenv("ARGS", "--lr 1")
    monkeypatch.setattr(timeline.gpus, "count_gpus", lambda: 1)
    title = "04_ddp --lr 1: 3 steps (when each process launches the work)"
    assert timeline.headline("04_ddp") == title


def test_of_a_trace_labels_count_once(tmp_path):
    """CUDA's own copies of the labels, and the kernels, have other categories."""
    events = []
    for name in "process|forward", "nccl:all_reduce", "Optimizer.step#SGD.step":
        for category in "user_annotation", "gpu_user_annotation", "kernel", "cpu_op":
            event = {"name": name, "cat": category, "ph": "X", "ts": 1.0, "dur": 2.0}
            events.append(event)
    (tmp_path / "0.json").write_text(json.dumps({"traceEvents": events}))
    assert timeline.read_spans(tmp_path / "0.json", "process") == [
        ("process", "forward", 1.0, 3.0),
        ("process", "all-reduce", 1.0, 3.0),
        ("process", "optimizer", 1.0, 3.0),
    ]


class Wrapper(nn.DataParallel):
    """With what would ask GPUs replaced."""

    def scatter(self, inputs, options, device_ids):
        parts = [(part,) for part in inputs[0].chunk(2)]
        return parts, [{}, {}]

    def replicate(self, network, device_ids):
        return [network, network]

    def parallel_apply(self, networks, inputs, options):
        first, second = networks
        return [first(*inputs[0]), second(*inputs[1])]

    def gather(self, outputs, device):
        return torch.cat(outputs)


def test_the_four_steps_of_torchs_own_wrapper_are_labeled():
    for method, kind in DATA_PARALLEL.items():
        add_label(Wrapper, method, f"process|{kind}")
    wrapped = Wrapper(nn.Linear(3, 2))
    wrapped.device_ids = [0, 1]
    wrapped.output_device = 0
    wrapped.src_device_obj = torch.device("cpu")
    with profile() as profiler:
        assert wrapped(torch.rand(4, 3)).shape == (4, 2)
    found = [event.name for event in profiler.events() if "|" in event.name]
    kinds = "scatter", "replicate", "forward", "gather"
    assert found == [f"process|{kind}" for kind in kinds]
