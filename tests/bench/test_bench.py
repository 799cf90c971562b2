"""Promise: the benchmark, the timeline and the model say what they claim to say."""

import json

import pytest

from conftest import call
from tools.bench import benchmark, figures, predict, results, tables, timeline
from tools.run import ranks
from tools.run.stages import ROOT


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
    assert predict.hours(1_280_000, 128, 100, 7.2) == 2000
    result = call(["make", "predict", "NODES=4", "GPUS_PER_NODE=8"])
    assert result.returncode == 0, result.stderr
    (weak,) = [line for line in result.stdout.splitlines() if line.startswith("weak")]
    took, ideal = map(float, weak.split()[-3:-1])
    assert ideal == 62.5
    assert 62.5 < took < 70
    faster = predict.step(0.1, 1e8, 4, 8, 1e9, 1e11)
    assert predict.step(0.1, 1e8, 4, 8, 1e10, 1e11) < faster
    assert predict.step(0.1, 1e8, 4, 8, 1e9, 1e11, overlap=0.5) < faster
    assert predict.step(0.1, 1e8, 4, 8, 1e9, 1e11, overlap=1) >= 0.1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["NODES=0"], "NODES=0 must be more than 0, such as NODES=4"),
        (["NODES=1.5"], "NODES=1.5 must be a whole number"),
        (["STEP=fast"], "STEP='fast' must be a number, such as STEP=7.2"),
        (["NETWORK=-1"], "NETWORK=-1 must be more than 0"),
        (["OVERLAP=2"], "OVERLAP=2 is a share, from 0 to 1"),
    ],
)
def test_predict_refuses(words, line):
    result = call(["make", "predict", *words])
    assert result.returncode != 0
    assert result.stderr.startswith(line)


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


def test_tables_and_pictures_of_the_kept_benchmark(tmp_path):
    result = results.published()
    text = tables.report(result)
    rows = [line for line in text.splitlines() if line.startswith("| 2048 | 1024 | ")]
    assert len(rows) == len(benchmark.process_counts()) or len(rows) >= 2
    assert text.count("processes are faster than one") == len(
        {case["hidden"] for case in result["scaling"]}
    )
    paths = figures.draw_benchmark(result, tmp_path)
    assert [path.name for path in paths] == ["bench_speedup.png", "bench_step.png"]
    assert all(path.stat().st_size > 10_000 for path in paths)


def test_candidates_are_measured_in_rounds():
    called = []
    candidates = {name: lambda name=name: called.append(name) for name in "ab"}
    assert benchmark.in_rounds(candidates, 2) == {"a": [None] * 2, "b": [None] * 2}
    assert called == ["a", "b", "a", "b"]


def test_ratios_are_of_samples_measured_one_after_the_other():
    assert tables.ratios([2, 9], [1, 3]) == [2, 3]
    assert tables.spread([3, 1, 2]) == (2, 1, 3)
    assert results.step_parts({"compute": [2], "slowest": [3], "step": [10]}) == (
        2,
        1,
        7,
    )


def overlaps(a, b):
    return a[2] < b[3] and b[2] < a[3]


def test_timeline_of_ddp_overlaps_backward_and_all_reduce(tmp_path):
    rows, kinds, paths = timeline.trace("04_ddp", tmp_path)
    assert rows == ["rank 0", "rank 1"]
    assert {"forward", "backward", "all-reduce", "optimizer", "copy"} <= set(kinds)
    assert [path.suffix for path in paths] == [".png", ".json", ".json"]
    assert paths[0].stat().st_size > 10_000
    for rank, path in enumerate(paths[1:]):
        found = timeline.read_spans(path, f"rank {rank}")
        backward = [s for s in found if s[1] == "backward"]
        reduced = [s for s in found if s[1] == "all-reduce"]
        assert len(backward) == 5
        assert sum(any(overlaps(b, r) for r in reduced) for b in backward) == 5


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


def test_timeline_of_dp_shows_its_four_steps(tmp_path):
    _, kinds, _ = timeline.trace("03_dp", tmp_path)
    assert {"scatter", "replicate", "forward", "gather", "backward"} <= set(kinds)
