"""Promise: the benchmark measures what its tables and pictures say."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tools.bench import benchmark, figures, tables
from tools.run import ranks
from tools.run.stages import ROOT


def test_processes_are_measured():
    words = [ROOT / "tools/bench/benchmark_rank.py", "[[128, 64], [64, 32]]", 2]
    one, _ = json.loads(ranks.run(words, 1).stdout)
    two, other = json.loads(ranks.run(words, 2).stdout)
    assert (one["processes"], two["processes"]) == (1, 2)
    assert (other["hidden"], other["batch"]) == (64, 32)
    assert set(one["samples"]) == {"step"}
    assert set(two["samples"]) == {"step", "compute"}
    for samples in *one["samples"].values(), *two["samples"].values():
        assert len(samples) == 2
        assert min(samples) > 0


def test_tables_and_pictures_of_the_published_benchmark(tmp_path):
    result = tables.published()
    text = tables.report(result)
    assert text.count("\n| 2048 | 1024 | ") == 2
    assert "| 2048 | 4096 | 2 | 174.26 (169.15 to 185.62) | 1.96 | 98% | 8% |" in text
    (path,) = figures.draw_benchmark(result, tmp_path)
    assert path.name == "bench_speedup.png"
    assert path.stat().st_size > 10_000
    alone = [case for case in result["scaling"] if case["processes"] == 1]
    assert figures.draw_benchmark({"scaling": alone}, tmp_path) == []


def test_samples_of_all_starts_are_kept(monkeypatch, tmp_path, capsys):
    """Each number of processes starts twice, in turns; on three GPUs, 1 and 2."""
    started = []

    def run(words, processes, **options):
        started.append((processes, words[2]))
        samples = {"step": [float(len(started))]}
        if processes == 2:
            samples["compute"] = [1.0]
        case = {"processes": processes, "hidden": 8, "batch": 64, "samples": samples}
        done = benchmark.ranks.subprocess.CompletedProcess(words, 0)
        done.stdout = json.dumps([case])
        return done

    monkeypatch.setattr(benchmark.gpus, "count_gpus", lambda: 3)
    monkeypatch.setattr(benchmark.ranks, "run", run)
    monkeypatch.setattr(benchmark, "machine", lambda: tables.published()["machine"])
    monkeypatch.setattr(os, "getloadavg", lambda: (0.84, 0, 0))
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.delenv("GPUS", raising=False)
    benchmark.main()
    assert started == [(1, 4), (2, 4), (1, 4), (2, 4)]
    found = json.loads((tmp_path / "bench.json").read_text())["scaling"]
    assert [case["samples"]["step"] for case in found] == [[1, 3], [2, 4]]
    told = capsys.readouterr().out
    assert told.startswith("this machine is busy (load 0.84)")
    two = "| 8 | 64 | 2 | 3000.00 (2000.00 to 4000.00) | 0.67 | 33% | 67% |"
    assert two in told


def test_speed_ups_and_shares():
    assert tables.speedup({1: {"step": [2, 4, 9]}, 2: {"step": [1, 2, 3]}}, 2) == (
        2,
        2 / 3,
        9,
    )
    assert tables.communication({"compute": [4], "step": [10]}) == pytest.approx(0.6)
    assert tables.communication({"compute": [11], "step": [10]}) == 0


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
