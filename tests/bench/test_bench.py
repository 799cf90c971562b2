"""Promise: the benchmark, the timeline and the model say what they claim to say."""

import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from matplotlib import image
from matplotlib.colors import to_rgb
from torch import nn
from torch.profiler import profile

from conftest import call
from tools.bench import benchmark, figures, loops, memory, predict, tables, timeline
from tools.bench.timeline_rank import LargeLayer, label_data_parallel
from tools.run import ranks
from tools.run.stages import EVERY, ROOT, STAGES


def test_a_ring_takes_what_its_messages_take():
    """Counted message by message: N ranks, N parts, each once round and once more."""
    checked = 0
    for number in 2, 3, 4, 8:
        size, bandwidth, latency = 1e8, 1e9, 1e-3
        seconds, have = 0.0, [{rank} for rank in range(number)]  # parts of part 0
        for _ in range(2 * (number - 1)):
            seconds += latency + size / number / bandwidth
            have = [have[rank] | have[rank - 1] for rank in range(number)]
        assert all(parts == set(range(number)) for parts in have)
        assert predict.ring(size, number, bandwidth, latency) == pytest.approx(seconds)
        checked += 1
    assert checked == 4
    assert predict.ring(1e8, 1, 1e9, 1e-3) == 0


def test_the_example_is_62_5_hours_and_a_little_more():
    assert predict.hours_on_one_gpu(predict.DEFAULTS) == 2000
    result = call(["make", "predict", "NODES=4", "GPUS_PER_NODE=8"])
    assert result.returncode == 0, result.stderr
    (weak,) = [line for line in result.stdout.splitlines() if line.startswith("weak")]
    took, ideal = map(float, weak.split()[-3:-1])
    assert ideal == 62.5
    assert 62.5 < took < 70
    given = {**predict.DEFAULTS, "STEP": 0.1}
    slower = predict.step(given, 32 * 128)
    assert predict.step({**given, "NETWORK": 100}, 32 * 128) < slower
    assert predict.step({**given, "OVERLAP": 0.5}, 32 * 128) < slower
    assert predict.step({**given, "OVERLAP": 1}, 32 * 128) >= 0.1


def test_modes_move_and_wait_as_counted():
    """Rings message by message; a pipeline's micro-batches slot by slot."""
    for gpus in 2, 3, 8:
        messages = {"ddp": 2 * (gpus - 1), "fsdp": 3 * (gpus - 1)}
        for mode, number in messages.items():
            assert predict.moved(mode, gpus, 24e6) == pytest.approx(
                24e6 / gpus * number
            )
        activations = predict.moved("tp", gpus, 24e6, activations=1e6, blocks=5)
        assert activations == pytest.approx(5 * 4 * predict.moved("ddp", gpus, 1e6))
        assert predict.kept("ddp", gpus, 24e6) == 96e6  # 16 bytes a weight
        for mode in "fsdp", "tp", "pp":
            assert predict.kept(mode, gpus, 24e6) == pytest.approx(96e6 / gpus)
        ended = [0] * gpus
        for _ in range(5):
            for place in range(gpus):
                ended[place] = max(ended[place], ended[place - 1] * (place > 0)) + 1
        assert predict.bubble(gpus, 5) == pytest.approx(1 - 5 / ended[-1])


@pytest.mark.parametrize(
    ("mode", "held", "sent", "took"),
    [
        # STEP / 8, and: a ring; three halves of it; 64 rings; two hops, over 1 - 7/39
        ("ddp", "408 MB", 178, 0.9 + 1.75 * 102e6 / 3e11 + 14 * 5e-6),
        ("fsdp", "51 MB", 268, 0.9 + 1.5 * (1.75 * 102e6 / 3e11 + 16 * 14 * 5e-6)),
        ("tp", "51 MB", 19824, 0.9 + 64 * (1.75 * 177e6 / 3e11 + 14 * 5e-6)),
        ("pp", "51 MB", 354, (0.9 + 2 * 177e6 / 3e11 + 64 * 5e-6) * 39 / 32),
    ],
)
def test_predict_takes_four_modes(mode, held, sent, took):
    given = predict.read({"MODE": mode, "NODES": "1"})
    text = predict.report(given)
    assert f": {held} of weights, gradients and Adam's state on each GPU\n" in text
    (strong,) = [line for line in text.splitlines() if line.startswith("strong")]
    assert strong.split()[6] == f"{sent:,}"
    assert predict.step(given, given["BATCH"]) == pytest.approx(took)
    alone = {**given, "GPUS_PER_NODE": 1}
    assert predict.step(alone, given["BATCH"]) == given["STEP"]
    assert ("32 micro-batches: 18% of the time" in text) == (mode == "pp")


def test_every_stage_holds_what_the_formula_says(tmp_path):
    """With 131 hidden units, which halves share unevenly."""
    found = {stage: memory.measure(stage, 131) for stage in memory.MEASURED}
    for stage, on_ranks in found.items():
        for rank, sizes in enumerate(on_ranks):
            assert memory.held(stage, 131, rank).items() <= sizes.items()
    layer = 4 * 785 * 131  # in use; more than FSDP holds of the whole model
    assert [sizes["layer"] for sizes in found["04_ddp"] + found["07_fsdp"]] == [
        layer
    ] * 4
    assert [sizes["layer"] for sizes in found["08_tensor_parallel"]] == [
        4 * 785 * units for units in (66, 65)
    ]
    figures.draw_memory(found, tmp_path / "memory.png")
    assert (tmp_path / "memory.png").stat().st_size > 10_000


def test_the_table_of_all_stages():
    """The bytes of the messages that tests/beyond counts, one rank's."""
    rows = [line.split(" | ") for line in memory.overview().splitlines()[2:]]
    assert [row[0].strip("| `") for row in rows] == memory.MEASURED
    assert [*memory.MEASURED, *memory.SAME_AS] == list(EVERY.values())
    sent = {row[0].strip("| `"): int(row[4].replace(",", "")) for row in rows}
    first, last = 785 * 128, 129 * 10
    assert sent["04_ddp"] == 4 * (first + last)
    assert sent["07_fsdp"] == 4 * (2 * (first // 2 + last // 2) + (first + last) // 2)
    assert sent["08_tensor_parallel"] == 4 * 640
    assert sent["09_pipeline"] == 4 * 4 * 16 * 128
    first, last = 785 * 64, 65 * 10
    shards = 2 * (first // 2 + last // 2) + (first + last) // 2
    assert sent["10_hybrid"] == 4 * (shards + 320)
    assert rows[8][2:4] == ["401,920 and 5,160", "1,607,688 and 20,648"]


def test_memory_refuses_what_is_no_width(monkeypatch):
    monkeypatch.setenv("ARGS", "--hidden 0")
    with pytest.raises(SystemExit, match="^ARGS='--hidden 0': memory takes the width"):
        memory.main()


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("NODES=0", "NODES=0 must be a whole number above 0, such as NODES=4"),
        ("NODES=1.5", "NODES=1.5 must be a whole number above 0, such as NODES=4"),
        ("STEP=fast", "STEP=fast must be a number above 0, such as STEP=7.2"),
        ("IMAGES=inf", "IMAGES=inf must be a whole number above 0, such as IMAG"),
        ("MODE=dp", "MODE=dp must be one of ddp, fsdp, tp, pp, such as MODE=ddp"),
        ("OVERLAP=2", "OVERLAP=2 must be a share, from 0 to 1, such as OVERLAP=0"),
    ],
)
def test_predict_refuses(word, line):
    with pytest.raises(SystemExit, match=f"^{line}"):
        predict.read(dict([word.split("=")]))


def made_up(bandwidth, latency):
    """Return a benchmark as the model says that it is, without noise."""
    cases = []
    for hidden in 128, 512, 2048, 4096:
        for batch in 64, 512, 4096:
            size = 4 * (784 * hidden + hidden + 10 * hidden + 10)
            times = {}
            for processes in 1, 2:
                work = predict.work(hidden, batch / processes)
                times[processes] = sum(
                    a * b for a, b in zip(work, [1e-4, 2e-9, 4e-11, 1e-9], strict=True)
                )
            half = 1.1 * times[2]
            talk = predict.ring(size, 2, bandwidth, latency)
            both = {"step": [half + talk], "slowest": [half], "compute": [half]}
            for processes, samples in (1, {"step": [times[1]]}), (2, both):
                case = {"processes": processes, "hidden": hidden, "batch": batch}
                cases.append({**case, "samples": samples})
    return {"scaling": cases}


def test_the_fit_finds_what_a_benchmark_was_made_of():
    parameters, rows = predict.fit(made_up(2e9, 5e-4))
    assert parameters["bandwidth"] == pytest.approx(2e9, rel=1e-3)
    assert parameters["latency"] == pytest.approx(5e-4, rel=1e-3)
    assert parameters["slower"] == pytest.approx(1.1, rel=1e-3)
    predicted = [row for row in rows if not row[2]]
    assert len(predicted) == 6
    for *_, measured, said in predicted:
        assert said == pytest.approx(measured, rel=1e-3)


def test_processes_are_measured():
    words = [ROOT / "tools/bench/benchmark_rank.py", "[[128, 64], [64, 32]]", 2]
    (one, _), (two, other) = (
        json.loads(ranks.run(words, processes).stdout) for processes in (1, 2)
    )
    assert (one["processes"], two["processes"]) == (1, 2)
    assert (other["hidden"], other["batch"]) == (64, 32)
    for case in one, two:
        names = {"step", "compute", "slowest", "reduce", "tiny"}
        assert set(case["samples"]) == names
    for samples in [*one["samples"].values(), *two["samples"].values()]:
        assert len(samples) == 2
        assert all(seconds > 0 for seconds in samples)
    assert all(map(float.__ge__, two["samples"]["slowest"], two["samples"]["compute"]))


def test_saving_is_measured_on_two_ranks():
    """2 x 4 bytes a weight in all: its value and its momentum."""
    words = [ROOT / "tools/bench/saving.py", 2048]
    printed = ranks.run(words, 2).stdout
    assert re.fullmatch(
        r"13 MB on 2 ranks\n"
        r"dcp.save        \d+\.\d{3} s\n"
        r"dcp.async_save  \d+\.\d{3} s, complete after \d+\.\d{3} s\n",
        printed,
    )


def test_tables_and_pictures_of_the_kept_benchmark(tmp_path):
    result = tables.published()
    text = tables.report(result)
    assert text.count("\n| 2048 | 1024 | ") == 2
    assert text.count(" wide, 2 processes against one: ") == 4
    assert (
        "- 2048 wide, 2 processes against one: slower with batches of 64; too close"
        " to tell with batches of 256; faster with batches of 1024, 4096." in text
    )
    paths = figures.draw_benchmark(result, tmp_path)
    assert [path.name for path in paths] == ["bench_speedup.png", "bench_step.png"]
    assert all(path.stat().st_size > 10_000 for path in paths)


def test_candidates_are_measured_in_rounds():
    called = []
    candidates = {name: lambda name=name: called.append(name) for name in "ab"}
    assert loops.in_rounds(candidates, 2) == {"a": [None] * 2, "b": [None] * 2}
    assert called == ["a", "b", "a", "b"]


def test_ratios_are_of_samples_measured_one_after_the_other():
    assert tables.ratios([2, 9], [1, 3]) == [2, 3]
    assert tables.spread([3, 1, 2]) == "2.00 (1.00 to 3.00)"
    samples = {"compute": [2], "slowest": [3], "step": [10]}
    assert tables.step_parts(samples) == (2, 1, 7)
    for compute, slowest in (2.0, 10.5), (11.0, 10.5):  # a machine that was busy
        samples = {"compute": [compute], "slowest": [slowest], "step": [2.43]}
        parts = tables.step_parts(samples)
        assert sum(parts) == pytest.approx(2.43)
        assert min(parts) >= 0


@pytest.mark.parametrize(
    ("several", "said"),
    [
        ([1, 2, 3, 4, 4.9], "faster"),
        ([1, 2, 3, 4, 5.1], "too close to tell"),
        ([6, 7, 8, 9, 8.9], "too close to tell"),
        ([9.1, 10, 11, 12, 13], "slower"),
    ],
)
def test_overlapping_ranges_conclude_nothing(several, said):
    def conclude(one, several):
        more = dict.fromkeys(("slowest", "reduce", "tiny"), [1] * len(several))
        case = dict(zip(("hidden", "batch"), tables.TUTORIAL, strict=True))
        scaling = [{**case, "processes": n, "samples": {"step": step, **more}}
                   for n, step in ((1, one), (2, several))]  # fmt: skip
        return tables.conclusions({"scaling": scaling})

    one = [5, 6, 7, 8, 9]
    start = "- 128 wide, 2 processes against one: "
    assert conclude(one, several).startswith(f"{start}{said} with batches of 64.\n")
    assert conclude(one[:2], several[:2]).startswith("Too few rounds to conclude")


def test_every_loop_takes_all_images_once(monkeypatch, data):
    taken, step = [], torch.optim.SGD.step
    counting = lambda self, *args: taken.append(1) or step(self, *args)
    monkeypatch.setattr(torch.optim.SGD, "step", counting)
    found = loops.epochs(data((1012, 997)), 1000, 2, hidden=8, batch=64)
    assert found.keys() == tables.LOOPS.keys()
    assert all(min(samples) > 0 and len(samples) == 2 for samples in found.values())
    assert len(taken) == (1 + 4 * 2) * 16  # a warm-up, then four loops in two rounds


def test_a_gpu_is_measured_too_where_there_is_one(monkeypatch, capsys):
    """As on a machine with a GPU: its loops and its table, the stages once more."""
    monkeypatch.setattr(benchmark, "machine", lambda: tables.published()["machine"])
    monkeypatch.setattr(benchmark.launch, "count_gpus", lambda: 1)
    asked = []

    def epochs(root, images, rounds, device="cpu", *case):
        asked.append((device, *case))
        stage = "stage 1" if device == "cpu" else "stage 2"
        return {stage: [2.0, 4.0], "bare": [1.0, 1.0], "plain": [4.0, 8.0],
                "typed": [1.0, 1.0]}  # fmt: skip

    def stages(root, epochs, flags=""):
        asked.append(flags)
        return {stage: [5] for stage in STAGES}

    monkeypatch.setattr(loops, "epochs", epochs)
    monkeypatch.setattr(benchmark, "stages", stages)
    monkeypatch.setattr(benchmark, "scaling", lambda *_: tables.published()["scaling"])
    text = tables.report(benchmark.measure(quick=True, with_peers=False))
    assert capsys.readouterr().out.startswith("this machine is busy (load 0.84)")
    cases = [(128, 64), (128, 1024), (2048, 64), (2048, 1024)]
    cases = [("cuda", *case) for case in cases]
    assert asked == [("cpu",), *cases, "", "--hidden 2048 --batch-size 1024"]
    assert "| `04_ddp` | 5 (5 to 5) | 5 (5 to 5) |" in text
    speed = "1,500 (1,000 to 2,000) | 0.38 (0.25 to 0.50) | 2.00 (2.00 to 2.00) |"
    assert f"| 2048 | 1024 | {speed}" in text


def test_gpus_are_those_that_launch_would_take(monkeypatch):
    """As on a machine with four GPUs; what is started later counts them from 0."""
    for name in "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "GPUS":
        monkeypatch.setenv(name, "1")  # to be restored afterwards
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("GPUS", "3,1")
    monkeypatch.setattr(benchmark.launch, "count_gpus", lambda: 4)
    here = lambda *_, **__: ThreadPoolExecutor(1)
    monkeypatch.setattr(benchmark, "ProcessPoolExecutor", here)
    benchmark.take_gpus()
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["GPUS"]) == ("3,1", "0,1")
    monkeypatch.setenv("GPUS", "cpu")
    benchmark.take_gpus()
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["GPUS"]) == ("", "cpu")
    monkeypatch.setenv("GPUS", "7")
    with pytest.raises(SystemExit, match="^GPUS=7"):
        benchmark.take_gpus()


def test_a_timeline_shows_every_kind_that_its_legend_names(tmp_path):
    """One µs of a second too; but nothing that is outside its borders."""
    spans = [("rank 0", "forward", 0, 9e5), ("rank 0", "copy", 5e5, 5e5 + 1),
             ("rank 0", "send", -9, -1), ("rank 1", "backward", 1e6 + 1, 2e6)]  # fmt: skip
    path = tmp_path / "timeline.png"
    drawn = figures.draw_timeline(spans, [0, 7e5, 1e6], "", path)
    assert drawn == (["rank 0"], ["copy", "forward"])
    picture = image.imread(path)[..., :3]
    below_legend = picture[len(picture) // 3 :]
    for colour in (*(figures.KINDS[kind] for kind in drawn[1]), "black"):
        off = np.abs(below_legend - to_rgb(colour)).max(axis=-1)
        assert (off < 0.01).sum() > 50, colour


def overlaps(a, b):
    return a[2] < b[3] and b[2] < a[3]


def test_timeline_of_ddp_waits_for_the_all_reduce(tmp_path, monkeypatch):
    """Nothing overlaps, since all gradients are in one bucket, which is full last.

    On as many ranks as launch takes: of three GPUs, two that can share a batch.
    """
    monkeypatch.setattr(timeline.launch, "count_gpus", lambda: 3)
    rows, kinds, paths = timeline.trace("04_ddp", tmp_path)
    assert rows == ["rank 0", "rank 1"]
    expected = {"forward", "backward", "waiting", "all-reduce", "optimizer", "copy"}
    assert expected <= set(kinds)
    assert [path.suffix for path in paths] == [".png", ".json", ".json"]
    assert paths[0].stat().st_size > 10_000
    for rank, path in enumerate(paths[1:]):
        found = timeline.read_spans(path, f"rank {rank}")
        passes = [span for span in found if span[1] == "backward"]
        waits = [span for span in found if span[1] == "waiting"]
        reduced = [span for span in found if span[1] == "all-reduce"]
        assert len(passes) == len(waits) == 5
        for computing, waiting in zip(passes, waits, strict=True):
            (exchange,) = [span for span in reduced if overlaps(waiting, span)]
            assert exchange[2] == waiting[2] == computing[3]
        assert not [1 for a in passes for b in reduced if overlaps(a, b)]


def test_timeline_of_model_parallel_takes_turns(tmp_path):
    rows, _, paths = timeline.trace("06_model_parallel", tmp_path)
    assert rows == ["process", "first half", "second half"]
    found = timeline.read_spans(paths[1], "process")
    first = [s for s in found if s[0] == "first half"]
    second = [s for s in found if s[0] == "second half"]
    assert [
        len([s for s in part if s[1] == "backward"]) for part in (first, second)
    ] == [5, 5]
    assert not [1 for a in first for b in second if overlaps(a, b)]
    sizes = [sum(map(torch.Tensor.numel, net.parameters()))
             for net in (nn.Linear(784, 1024), LargeLayer(1024, 10))]  # fmt: skip
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)


def test_timeline_of_stage_5_ends_with_the_evaluation_of_every_rank(tmp_path):
    rows, kinds, paths = timeline.trace("05_ddp_inference", tmp_path)
    assert rows == ["rank 0", "rank 1"]
    assert "evaluation" in kinds
    for path in paths[1:]:
        spans = timeline.read_spans(path, "")
        *_, step, end = timeline.window("05_ddp_inference", spans)
        after = [kind for _, kind, first, last in sorted(spans, key=lambda s: s[2])
                 if first > step and last <= end]  # fmt: skip
        assert after.count("evaluation") == 1
        assert after[-1] == "all-reduce"
        assert "backward" not in after


@pytest.mark.parametrize(("stage", "expected"), [
    ("07_fsdp", {"forward": {"all-gather": 2},
                 "backward": {"all-gather": 2, "reduce-scatter": 1},
                 "waiting": {"reduce-scatter": 1}}),
    ("08_tensor_parallel", {"forward": {"all-reduce": 1}, "backward": {}}),
    ("09_pipeline", {"forward": {"send": 1}, "backward": {}}),
])  # fmt: skip
def test_timelines_beyond_show_what_moves_in_each_pass(
    stage, expected, tmp_path, monkeypatch
):
    """And with two micro-batches there are two passes in each of the five steps."""
    pieces = 2 if stage == "09_pipeline" else 1
    if pieces == 2:
        monkeypatch.setenv("ARGS", "--micro-batches 2")
    rows, _, paths = timeline.trace(stage, tmp_path)
    assert rows == ["rank 0", "rank 1"]
    found = timeline.read_spans(paths[1], "rank 0")
    messages = {"all-gather", "reduce-scatter", "all-reduce", "send", "receive"}
    for kind, inside in expected.items():
        passes = [span for span in found if span[1] == kind]
        assert len(passes) == 5 * pieces
        for _, _, begin, end in passes:
            if stage == "08_tensor_parallel" and kind == "forward":
                # the loss waits for its all-reduce, which may begin after the pass
                end = min(s[2] for s in found if s[1] == "backward" and s[2] > begin)
            seen = [s[1] for s in found if s[1] in messages and begin <= s[2] < end]
            assert {name: seen.count(name) for name in seen} == inside


def test_timeline_of_dp_shows_its_four_steps(tmp_path):
    rows, kinds, paths = timeline.trace("03_dp", tmp_path)
    assert {"scatter", "replicate", "forward", "gather", "backward"} <= set(kinds)
    assert rows == ["process", "copy 0", "copy 1"]
    found = [span[:2] for span in timeline.read_spans(paths[1], "process")]
    passes = [(row, kind) for row in rows[1:] for kind in ("forward", "backward")]
    assert [found.count(one) for one in passes] == [5] * 4


def test_of_a_trace_labels_count_once(tmp_path):
    """CUDA's own copies of the labels, and the kernels, have other categories."""
    names = ["process|forward", "nccl:all_reduce", "Optimizer.step#SGD.step"]
    categories = "user_annotation", "gpu_user_annotation", "kernel", "cpu_op"
    events = [{"name": name, "cat": cat, "ph": "X", "ts": 1.0, "dur": 2.0}
              for name in names for cat in categories]  # fmt: skip
    (tmp_path / "0.json").write_text(json.dumps({"traceEvents": events}))
    assert timeline.read_spans(tmp_path / "0.json", "process") == [
        ("process", kind, 1.0, 3.0) for kind in ("forward", "all-reduce", "optimizer")
    ]


def test_the_four_steps_of_torchs_own_wrapper_are_labelled(monkeypatch):
    """nn.DataParallel itself, with what would ask GPUs replaced."""
    module = sys.modules[nn.DataParallel.__module__]
    monkeypatch.setattr(
        module, "scatter_kwargs",
        lambda given, kwargs, *_, **__: ([(part,) for part in given[0].chunk(2)],
                                         [{}, {}]),
    )  # fmt: skip
    monkeypatch.setattr(module, "replicate", lambda net, *_: [net, net])
    monkeypatch.setattr(
        module, "parallel_apply",
        lambda nets, inputs, *_: [n(*i) for n, i in zip(nets, inputs, strict=True)],
    )  # fmt: skip
    monkeypatch.setattr(module, "gather", lambda outputs, *_, **__: torch.cat(outputs))

    class Wrapper(nn.DataParallel):  # so that torch's own keeps its methods
        pass

    label_data_parallel(Wrapper, "process")
    wrapped = Wrapper(nn.Linear(3, 2))
    wrapped.device_ids, wrapped.dim, wrapped.output_device = [0, 1], 0, 0
    wrapped.src_device_obj = torch.device("cpu")
    with profile() as profiler:
        assert wrapped(torch.rand(4, 3)).shape == (4, 2)
    found = [event.name for event in profiler.events() if "|" in event.name]
    kinds = "scatter", "replicate", "forward", "gather"
    assert found == [f"process|{kind}" for kind in kinds]
