"""Promise: however the transformer is split, it matches one process to 1e-12."""

import csv
import functools

import pytest

from conftest import alone, run, slow, use_fake_gpus, used_gpus
from tools.run import compare
from tools.run.edit import VARIANTS, variant_stage, variant_text
from tools.run.stages import BY_NAME, CPU_PROCESSES, TRANSFORMER, load, script

# Two reports, the second over fewer steps; uneven batches if a stage allows them.
FLAGS = ["--steps", 5, "--every", 3, "--seed", 1, "--lr", 0.01]
CASES = [  # stage, ranks, extra flags, also of its reference
    ("14_data_parallel", 3, ["--batch-size", 7]),
    ("14_data_parallel", 2, ["--batch-size", 1]),  # one rank has no sequence
    ("15_sequence_parallel", 2, ["--batch-size", 7]),
    ("16_pipeline_1f1b", 2, ["--batch-size", 8]),
    ("17_context_parallel", 2, ["--batch-size", 7]),
    ("19_expert_parallel", 2, ["--batch-size", 7]),
    ("20_grid", 4, ["--batch-size", 7]),
    ("21_lost_rank", 3, ["--batch-size", 7]),
]
MORE_CASES = [
    slow("15_sequence_parallel", 4, ["--batch-size", 7]),
    slow("16_pipeline_1f1b", 4, ["--batch-size", 8, "--blocks", 4]),
    slow("17_context_parallel", 4, ["--batch-size", 7]),
    slow("19_expert_parallel", 4, ["--batch-size", 7]),
    slow("20_grid", 2, ["--batch-size", 7]),
]
VARIANT_CASES = [  # variant, ranks, sequences
    ("fsdp", 3, 7),
    ("zero_1", 3, 7),
    ("sequence_by_hand", 2, 7),
    ("gpipe", 2, 8),
    ("gathered_keys", 2, 7),
    ("recomputed", 2, 7),
]
MORE_VARIANT_CASES = [
    slow("sequence_by_hand", 4, 7),
    slow("gathered_keys", 4, 7),
    slow("recomputed", 4, 7),
]
ON_FAKE_GPUS = [  # the fake GPUs lack DTensors and PyTorch's schedules
    "13_gpt",
    "14_data_parallel",
    "17_context_parallel",
    "18_moe",
    "19_expert_parallel",
    "21_lost_rank",
]


def train(stage, out, *flags, processes=None, **options):
    """Run a stage without warnings and return the rows of its metrics.csv."""
    words = [*FLAGS, *flags, "--out", out]
    result = run(stage, *words, processes=processes, timeout=60, **options)
    assert (result.returncode, result.stderr) == (0, "")
    return rows_of(out)


def rows_of(out):
    """Return the rows of metrics.csv, the only file in `out`."""
    assert {path.name for path in out.iterdir()} == {"metrics.csv"}
    with open(out / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """Return a function from a stage and flags to the rows of a single process."""

    @functools.cache
    def get(stage, *flags):
        return train(stage, tmp_path_factory.mktemp("one"), *flags)

    return get


def off(ours, theirs):
    """Return the largest difference in loss; assert equal steps and counts."""
    for name in "step", "correct", "total":
        assert [row[name] for row in ours] == [row[name] for row in theirs]
    pairs = zip(ours, theirs, strict=True)
    return max(abs(float(one["loss"]) - float(other["loss"])) for one, other in pairs)


@pytest.mark.parametrize(("stage", "ranks", "flags"), CASES + MORE_CASES)
def test_several_ranks_train_as_one(stage, ranks, flags, reference, tmp_path):
    rows = train(stage, tmp_path, *flags, processes=ranks)
    expected = reference(BY_NAME[stage].curve, *flags)
    assert [row["step"] for row in expected] == ["3", "5"]
    assert 0 <= off(rows, expected) <= 1e-12


@pytest.mark.parametrize(("name", "ranks", "count"), VARIANT_CASES + MORE_VARIANT_CASES)
def test_a_variant_has_the_same_curve(name, ranks, count, reference, tmp_path):
    flags = ["--batch-size", count]
    path = tmp_path / "gpt.py"
    path.write_text(variant_text(name))
    out = tmp_path / "out"
    rows = train(variant_stage(name), out, *flags, processes=ranks, path=path)
    assert 0 <= off(rows, reference("13_gpt", *flags)) <= 1e-12


def test_every_cut_is_among_the_cases():
    cut = {name for name in TRANSFORMER.values() if BY_NAME[name].cpu_processes}
    assert {stage for stage, *_ in CASES} == cut
    names = {path.stem for path in VARIANTS.glob("*.patch")}
    of_second = {name for name in names if variant_stage(name) in cut}
    assert {name for name, *_ in VARIANT_CASES} == of_second


def test_a_text_is_its_half_twice_and_every_step_has_its_own(reference):
    """Only copied tokens contribute to the loss."""
    draw_batch = load("13_gpt").draw_batch
    inputs, targets = draw_batch(7, seed=1)
    assert inputs.shape == targets.shape == (7, 32)
    assert (inputs[:, :16] == inputs[:, 16:]).all()
    assert (targets[:, :15] == -100).all()
    assert (targets[:, 15:31] == inputs[:, :16]).all()
    assert (targets[:, 31] == inputs[:, 0]).all()
    assert (inputs != draw_batch(7, seed=2)[0]).any()
    rows = reference("13_gpt", "--batch-size", 7)
    assert [row["total"] for row in rows] == [str(3 * 7 * 17), str(2 * 7 * 17)]


@pytest.mark.parametrize("stage", ["13_gpt", slow("20_grid")])
def test_float32_differs_where_float64_does_not(stage, reference, tmp_path):
    """FSDP has its own way to reduce float32."""
    flags = ["--batch-size", 7]
    rows = train(stage, tmp_path, *flags, "--dtype", "float32")
    assert 1e-9 < off(rows, reference("13_gpt", *flags)) < 1e-5


@pytest.mark.parametrize("stage", ON_FAKE_GPUS)
def test_each_rank_has_a_gpu_of_its_own_where_there_are_some(
    stage, reference, tmp_path
):
    count = CPU_PROCESSES.get(stage, 1)
    prepare = use_fake_gpus, tmp_path, count
    rows = train(stage, tmp_path / "out", "--batch-size", 7, prepare=prepare)
    assert 0 <= off(rows, reference(BY_NAME[stage].curve, "--batch-size", 7)) <= 1e-12
    assert used_gpus(tmp_path) == [{f"cuda:{rank}"} for rank in range(count)]


@pytest.mark.parametrize(
    ("stage", "ranks", "flags", "line"),
    [
        ("15_sequence_parallel", 3, [], "4 heads: take 2 or 4 processes, not 3"),
        ("16_pipeline_1f1b", 3, [], "--blocks must be a multiple of 3 (processes)"),
        (
            "16_pipeline_1f1b",
            2,
            ["--micro-batches", 5],
            "--batch-size must be a multiple of --micro-batches",
        ),
        ("17_context_parallel", 3, [], "32 tokens: take 2, 4 or 8 processes"),
        ("19_expert_parallel", 3, [], "4 experts: take 2 or 4 processes, not 3"),
        ("20_grid", 3, [], "start it with torchrun --nproc-per-node=4 {}"),
    ],
)
def test_what_cannot_be_cut_is_refused_at_once(stage, ranks, flags, line, tmp_path):
    flags = [*flags, "--out", tmp_path / "out"]
    result = run(stage, *flags, processes=0, prepare=(alone, ranks), timeout=60)
    assert (result.stdout, result.stderr) == ("", f"{line.format(script(stage))}\n")
    assert result.returncode != 0
    assert not (tmp_path / "out").exists()


def test_compare_holds_the_second_curve_to_more_than_rounding_of_float32():
    right = [(2.804564, 1130, 16320), (0.022173, 16320, 16320)]
    wrong = {
        "a loss is off by 5.0e-05": [right[0], (0.022173 * (1 - 5e-5), *right[1][1:])],
        "a loss is off by 1.0e-06; float32": [(2.804564 * (1 + 1e-6), 1130, 16320)],
        "a loss is not a number": [(float("nan"), 1130, 16320)],
        "1 more or fewer tokens": [(2.804564, 1131, 16320)],
        "not the same number of tokens": [(2.804564, 1130, 16321)],
    }
    for reason, curve in wrong.items():
        verdict, is_equal = compare.judge(curve, right, is_second=True)
        assert verdict.startswith(f"DIFFERENT: {reason}")
        assert not is_equal
    near = [(2.804564 * (1 + 1e-13), 1130, 16320)]
    curves = {"13_gpt": right, "17_context_parallel": near}
    lines, differ = compare.make_table(curves)
    assert differ == []
    assert lines[1].endswith("/16320 equal")
    assert "/16320 equal (1e-13)" in lines[2]
