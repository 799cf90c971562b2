"""Promise: the benchmark measures what its tables and pictures say."""

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tools.bench import benchmark, figures, loops, tables
from tools.run import ranks
from tools.run.stages import ROOT


def test_processes_are_measured():
    words = [ROOT / "tools/bench/benchmark_rank.py", "[[128, 64], [64, 32]]", 2]
    one, _ = json.loads(ranks.run(words, 1).stdout)
    two, other = json.loads(ranks.run(words, 2).stdout)
    assert (one["processes"], two["processes"]) == (1, 2)
    assert (other["hidden"], other["batch"]) == (64, 32)
    for case in one, two:
        assert set(case["samples"]) == {"step", "compute", "slowest", "reduce"}
        for samples in case["samples"].values():
            assert len(samples) == 2
            assert min(samples) > 0
    slowest = two["samples"]["slowest"]
    assert all(map(float.__ge__, slowest, two["samples"]["compute"]))


def test_saving_is_measured_on_two_ranks():
    """2 x 4 bytes per weight in all: its value and its momentum."""
    words = [ROOT / "tools/bench/saving.py", 2048]
    printed = ranks.run(words, 2).stdout
    assert re.fullmatch(
        r"13 MB on 2 ranks\n"
        r"dcp.save        \d+\.\d{3} s\n"
        r"dcp.async_save  \d+\.\d{3} s, complete after \d+\.\d{3} s\n",
        printed,
    )


def test_tables_and_pictures_of_the_published_benchmark(tmp_path):
    result = tables.published()
    text = tables.report(result)
    assert text.count("\n| 2048 | 1024 | ") == 2
    assert "| the plain loop: `ToTensor`, two workers | 3.59 (3.53 to 4.09) |" in text
    assert "| 2048 | 4096 | 2 | 174.26 (169.15 to 185.62) | 1.96 | 98% | 6% |" in text
    paths = figures.draw_benchmark(result, tmp_path)
    assert [path.name for path in paths] == ["bench_speedup.png", "bench_step.png"]
    assert all(path.stat().st_size > 10_000 for path in paths)
    alone = [case for case in result["scaling"] if case["processes"] == 1]
    assert figures.draw_benchmark({"scaling": alone}, tmp_path) == []


def test_samples_of_all_starts_are_kept(monkeypatch):
    """Each number of processes starts twice, in turns, for half of the rounds."""
    started = []

    def run(words, processes, **options):
        started.append((processes, words[1:]))
        samples = {"step": [float(len(started))]}
        case = {"processes": processes, "samples": samples}
        done = benchmark.ranks.subprocess.CompletedProcess(words, 0)
        done.stdout = json.dumps([case])
        return done

    monkeypatch.setattr(benchmark.gpus, "count_gpus", lambda: 3)
    monkeypatch.setattr(benchmark.ranks, "run", run)
    found = benchmark.measure_steps({8: [64]}, 3)
    words = ["[[8, 64]]", 2]
    assert started == [(1, words), (2, words), (1, words), (2, words)]
    assert [case["samples"]["step"] for case in found] == [[1, 3], [2, 4]]


def test_ratios_are_of_samples_measured_one_after_the_other():
    text = tables.epochs_table({"stage 1": [1, 3], "bare": [2, 9]}, 60_000)
    assert (
        "| a bare loop over tensors | 5.50 (2.00 to 9.00) | 2.50 (2.00 to 3.00)" in text
    )
    assert tables.speedup({1: {"step": [2, 4, 9]}, 2: {"step": [1, 2, 3]}}, 2) == (
        2,
        2 / 3,
        9,
    )
    samples = {"compute": [2], "slowest": [3], "step": [10]}
    assert tables.step_parts(samples) == (2, 1, 7)
    for compute in 2.0, 11.0:  # a machine that was busy
        samples = {"compute": [compute], "slowest": [10.5], "step": [2.43]}
        parts = tables.step_parts(samples)
        assert sum(parts) == pytest.approx(2.43)
        assert min(parts) >= 0


def test_every_loop_takes_all_images_once(monkeypatch, data):
    taken = []
    step = torch.optim.SGD.step

    def counting(self, *arguments):
        taken.append(1)
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.SGD, "step", counting)
    found = loops.epochs(data((1012, 997)), 2)
    assert found.keys() == {"stage 1", "plain", "bare"}
    assert all(min(samples) > 0 and len(samples) == 2 for samples in found.values())
    assert len(taken) == (1 + 3 * 2) * 16  # a warm-up, then three loops in two rounds


def test_a_gpu_is_measured_too_where_there_is_one(monkeypatch, capsys):
    """As on a machine with a GPU: its loops, and their table."""
    monkeypatch.setattr(benchmark, "machine", lambda: tables.published()["machine"])
    monkeypatch.setattr(benchmark.gpus, "count_gpus", lambda: 1)

    def epochs(root, rounds, device="cpu"):
        stage = "stage 1" if device == "cpu" else "stage 2"
        return {stage: [2.0, 4.0], "plain": [4.0, 8.0], "bare": [1.0, 1.0]}

    monkeypatch.setattr(loops, "epochs", epochs)
    steps = lambda *_: tables.published()["scaling"]
    monkeypatch.setattr(benchmark, "measure_steps", steps)
    text = tables.report(benchmark.measure(quick=True))
    assert capsys.readouterr().out.startswith("this machine is busy (load 0.84)")
    assert "| stage 1 | 3.00 (2.00 to 4.00) | 1.00 (1.00 to 1.00) |" in text
    assert "| stage 2, on a GPU | 3.00 (2.00 to 4.00) | 1.00 (1.00 to 1.00) |" in text
    assert text.count("an epoch of 4,000 images, one process") == 2


def test_gpus_are_those_that_launch_would_take(monkeypatch):
    """As on a machine with four GPUs; what is started later counts them from 0."""
    for name in "CUDA_VISIBLE_DEVICES", "GPUS":
        monkeypatch.setenv(name, "1")  # to be restored afterwards
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("GPUS", "3,1")
    monkeypatch.setattr(benchmark.gpus, "count_gpus", lambda: 4)
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
