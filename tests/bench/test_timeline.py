"""Promise: a timeline shows what happened in a step, and when."""

import json
import re
import sys

import numpy as np
import pytest
import torch
from matplotlib import image
from matplotlib.colors import to_rgb
from torch import nn
from torch.profiler import profile

from tools.bench import figures, timeline
from tools.bench.timeline_rank import DATA_PARALLEL, add_label, linear
from tools.run.stages import CPU_PROCESSES


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
    figures.draw_timeline(spans, [0, 7e5, 1e6], "", path)
    picture = image.imread(path)[..., :3]
    below_legend = picture[len(picture) // 3 :]
    drawn = []
    for kind, color in figures.KINDS.items():
        for part in picture, below_legend:
            distance = np.abs(part - to_rgb(color)).max(axis=-1)
            if (distance < 0.01).sum() > 50:
                drawn.append(kind)
    assert drawn == 2 * ["forward"] + 2 * ["all-reduce"] + 2 * ["copy"]


DDP = "forward backward all-reduce waiting optimizer"
FSDP = "forward all-gather all-gather{} backward all-gather all-gather reduce-scatter "
FSDP += "reduce-scatter optimizer"
STEPS = {  # stage -> what begins in a step, in order
    "04_ddp": DDP,
    "05_ddp_inference": DDP,
    "07_fsdp": FSDP.format(""),
    "08_tensor_parallel": "forward all-reduce backward optimizer",
    "09_pipeline": 2 * "forward send " + 2 * "receive backward " + "optimizer",
    "10_hybrid": FSDP.format(" all-reduce"),
}


@pytest.mark.parametrize("stage", STEPS)
def test_a_timeline_shows_what_happens_in_each_step(stage, tmp_path, monkeypatch):
    """All gradients of DDP are in one bucket, so nothing overlaps: the ranks wait."""
    if stage == "09_pipeline":
        monkeypatch.setenv("ARGS", "--micro-batches 2")
    picture, *traces = timeline.trace(stage, tmp_path)
    assert picture.stat().st_size > 10_000
    assert len(traces) == CPU_PROCESSES[stage]
    spans = timeline.read_spans(traces[0], "rank 0")
    begun = []
    for _, kind, start, _ in spans:
        if kind not in ("copy", "data"):
            begun.append((start, kind))
    text = " ".join(kind for _, kind in sorted(begun))
    *steps, after = re.split("(?<=optimizer) ", text)
    assert steps == [STEPS[stage]] * 5
    ends = {start: end for _, _, start, end in of_kind(spans, "all-reduce")}
    for _, _, start, end in of_kind(spans, "waiting"):
        assert ends[start] <= end
    if stage == "05_ddp_inference":
        assert after == "all-reduce evaluation all-reduce"
        assert timeline.window(stage, spans)[-1] == max(ends.values())


def test_timeline_of_model_parallel_takes_turns(tmp_path):
    _, path = timeline.trace("06_model_parallel", tmp_path)
    spans = timeline.read_spans(path, "process")
    assert {span[0] for span in spans} == {"process", "first half", "second half"}
    first = [span for span in spans if span[0] == "first half"]
    second = [span for span in spans if span[0] == "second half"]
    for half in first, second:
        assert len(of_kind(half, "forward")) == 5
        assert len(of_kind(half, "backward")) == 5
    assert not [one for one in first for other in second if overlap(one, other)]
    weights = []
    for network in linear(784, 1024), linear(1024, 10):
        weights.append(sum(map(torch.Tensor.numel, network.parameters())))
    assert weights[1] == pytest.approx(weights[0], rel=0.02)


def test_stage_3_is_drawn_with_two_gpus_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["timeline", "3"])
    timeline.main()
    assert capsys.readouterr().out.startswith("03_dp: not drawn")
    monkeypatch.setattr(timeline, "trace", lambda stage, out: [out / stage])
    monkeypatch.setattr(timeline.gpus, "count_gpus", lambda: 2)
    timeline.main()
    assert capsys.readouterr().out == f"03_dp: {tmp_path / '03_dp'}\n"


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
    for name in "forward", "nccl:all_reduce", "Optimizer.step#SGD.step":
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
    """Without what would ask GPUs."""

    scatter = lambda self, inputs, options, devices: ([inputs, inputs], [{}, {}])
    replicate = lambda self, network, devices: [network, network]
    parallel_apply = lambda self, networks, inputs, options: [networks[0](*inputs[0])]
    gather = lambda self, outputs, device: outputs[0]


def test_the_four_steps_of_torchs_own_wrapper_are_labeled():
    for method, kind in DATA_PARALLEL.items():
        add_label(Wrapper, method, kind)
    wrapped = Wrapper(nn.Linear(3, 2))
    wrapped.device_ids = [0, 1]
    wrapped.output_device = 0
    wrapped.src_device_obj = torch.device("cpu")
    with profile() as profiler:
        assert wrapped(torch.rand(4, 3)).shape == (4, 2)
    kinds = ["scatter", "replicate", "forward", "gather"]
    found = [event.name for event in profiler.events() if event.name in kinds]
    assert found == kinds
