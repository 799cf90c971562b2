"""Promise: the benchmark measures what its tables and pictures say."""

import json
import re

import pytest

from conftest import ROOT, call
from tools.bench import benchmark, tables
from tools.lab import fake_cuda
from tools.run import ranks


def test_ranks_share_a_batch_and_only_whole_steps_exchange_gradients():
    """Each count of processes is started twice, in turns, for two rounds."""
    one, two = benchmark.measure([1, 2], {8: [64]}, 2)
    assert one["ranks"] == [{"images": 64, "device": "cpu", "averaged": {"step": True}}]
    share = {"images": 32, "device": "cpu"}
    share["averaged"] = {"step": True, "compute": False}
    assert two["ranks"] == [share, share]
    assert one["samples"].keys() == {"step"}
    assert two["samples"].keys() == {"step", "compute"}
    for samples in *one["samples"].values(), *two["samples"].values():
        assert len(samples) == 4
        assert min(samples) > 0


def two_gpus(_):
    fake_cuda.two_gpus(lambda *_, **__: None)


def test_each_rank_has_a_gpu_of_its_own(tmp_path):
    words = [ROOT / "tools/bench/benchmark_rank.py", "[[8, 64]]", 1, tmp_path]
    result = ranks.run(words, 2, prepare=(two_gpus,))
    assert result.returncode == 0, result.stderr
    records = [json.loads((tmp_path / f"{n}.json").read_text()) for n in range(2)]
    assert [record["device"] for (record,) in records] == ["cuda:0", "cuda:1"]


def test_the_table_has_means_over_ranks_and_medians_over_rounds():
    facts = {"images": 1, "device": "cpu", "averaged": {}}
    one = [{"step": [0.002, 0.004, 0.009]}]
    two = [{"step": [0.001, 0.003, 0.008], "compute": [0.001, 0.001, 0.001]}]
    two += [{"step": [0.003, 0.005, 0.012], "compute": [0.003, 0.002, 0.001]}]
    cases = []
    for samples in one, two:
        case = {"processes": len(samples), "hidden": 8, "batch": 64}
        records = [{**facts, "samples": of_rank} for of_rank in samples]
        cases.append(benchmark.merged(case, records))
    _, first, second = tables.steps({"scaling": cases})
    assert first == [8, 64, 1, "4.00 (2.00 to 9.00)", 1, "100%", "–"]
    assert second == [8, 64, 2, "4.00 (2.00 to 10.00)", "1.00", "50%", "62%"]
    assert tables.communication({"step": [10], "compute": [11]}) == 0


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("bench OUT=README.md/x", "cannot write to .*README.md/x: name a folder"),
        ("memory GPUS=7", "GPUS=7: CUDA finds no GPU"),
        ("trace NPROC=3", "04_ddp: 3 processes cannot share 256 images a step: use "),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(words, line):
    result = call(["make", *words.split()])
    said, make_says = result.stderr.splitlines()
    assert re.match(line, said)
    assert make_says.startswith("make")  # make[1] below another make
