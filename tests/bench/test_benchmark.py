"""Promise: the benchmark measures what its tables and pictures say."""

import json
import os
from itertools import groupby

import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from onecurve import api
from tools.bench import benchmark, held, tables, trace


def test_each_number_of_processes_is_measured_twice_in_turns():
    cases = benchmark.measure([1, 2], {8: [64]}, 2)
    assert [case["processes"] for case in cases] == [1, 2, 1, 2]
    assert cases[0]["samples"].keys() == {"step"}
    assert cases[1]["samples"].keys() == {"step", "compute"}
    group = tables.by_case({"scaling": cases})[8, 64]
    for samples in *group[1].values(), *group[2].values():
        assert len(samples) == 4
        assert min(samples) > 0


def watch(rank, folder):
    """Have a rank log its number of images and its gradients."""
    torch.manual_seed(rank)  # other images, so other gradients
    notes = open(folder / str(rank), "w", buffering=1)  # noqa: SIM115

    def after_forward(module, inputs, outputs):
        print(len(outputs), file=notes)

    def after_step(optimizer, *_):
        gradient = optimizer.param_groups[0]["params"][0].grad
        print("gradient", gradient.double().sum().item(), file=notes)

    register_module_forward_hook(after_forward)
    register_optimizer_step_post_hook(after_step)


def test_ranks_share_a_batch_and_only_whole_steps_average(tmp_path):
    words = [benchmark.PROGRAM, '{"8": [64]}', 2, tmp_path / "samples.json"]
    result = api.run(words, 2, prepare=(watch, tmp_path))
    assert result.returncode == 0, result.stderr
    gradients = []
    for rank in 0, 1:
        notes = (tmp_path / str(rank)).read_text().splitlines()
        gradients.append([note for note in notes if "gradient" in note])
        assert set(notes) - set(gradients[-1]) == {"32"}
    are_equal = [one == other for one, other in zip(*gradients, strict=True)]
    assert [turn for turn, _ in groupby(are_equal)] == [True, False] * 3


def made_up_cases(*_):
    """Return a made-up result of `measure` for one and two processes, in seconds."""
    one = {"step": [0.002, 0.004, 0.009]}
    two = {"step": [0.002, 0.004, 0.010], "compute": [0.002, 0.0015, 0.001]}
    cases = []
    for processes, samples in (1, one), (2, two):
        case = {"processes": processes, "hidden": 8, "batch": 64}
        cases.append({**case, "samples": samples})
    return cases


def test_the_table_has_medians_over_rounds():
    _, first, second = tables.steps({"scaling": made_up_cases()})
    assert first == [8, 64, 1, "4.00 (2.00 to 9.00)", 1, "100%", "–"]
    assert second == [8, 64, 2, "4.00 (2.00 to 10.00)", "1.00", "50%", "62%"]
    assert tables.communication({"step": [10], "compute": [11]}) == 0


@pytest.mark.parametrize(("cpus", "counts"), [(1, [1]), (5, [1, 2, 4])])
def test_make_bench_measures_up_to_as_many_processes_as_there_are_cores(
    cpus, counts, monkeypatch, tmp_path, capsys
):
    asked = []
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setenv("QUICK", "1")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))
    monkeypatch.setattr(
        benchmark, "measure", lambda *of: asked.append(of) or made_up_cases()
    )
    benchmark.main()
    assert asked == [(counts, benchmark.QUICK_BATCHES, 1, "")]
    result = json.loads((tmp_path / "bench.json").read_text())
    assert result["scaling"] == made_up_cases()
    assert result["machine"]["cpus"] == cpus
    assert f"Measured on {cpus} CPUs (" in capsys.readouterr().out


def trace_default():
    trace.main("")


@pytest.mark.parametrize(
    ("main", "given", "line"),
    [
        (
            benchmark.main,
            "OUT=README.md/x",
            r"cannot write to .*README.md/x \(.*\)\. C",
        ),
        (benchmark.main, "NPROC=2", "make bench measures 1, 2, 4 and more processes. "),
        (held.main, "GPUS=7", "GPUS=7: CUDA finds no GPU"),
        (trace_default, "NPROC=3", "04_ddp: 3 processes cannot share 256 images a st"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(
    main, given, line, monkeypatch, tmp_path
):
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setenv(*given.split("="))
    with pytest.raises(SystemExit, match=f"^{line}"):
        main()
