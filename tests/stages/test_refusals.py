"""Promise: a mistake is refused in a line that says what to do, or shows itself."""

import re

import pytest
import torch

from conftest import (
    DISTRIBUTED,
    ENV,
    EVEN,
    PARTIAL,
    call,
    command,
    edited,
    run,
    weights,
)
from tools.run.stages import STAGES, load, script


def refused(result, line, times=1):
    """Assert that a run ended with `line`, once from each process, and did nothing."""
    assert result.returncode != 0
    assert result.stderr == times * f"{line}\n"
    assert result.stdout == ""


@pytest.mark.parametrize("stage", DISTRIBUTED)
def test_without_torchrun(stage, data):
    result = run(stage, "--data", data(EVEN), processes=0)
    refused(result, f"start it with torchrun --nproc-per-node=2 {script(stage)}")


@pytest.mark.parametrize("stage", STAGES)
def test_data_without_mnist(stage, tmp_path):
    result = run(stage, "--data", tmp_path, "--out", tmp_path / "out", processes=1)
    refused(result, f"no MNIST in {tmp_path}: run 'make data', or name --data")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("stage", DISTRIBUTED)
def test_batch_that_cannot_be_shared(stage, data, tmp_path):
    result = run(stage, "--data", data(PARTIAL), "--out", tmp_path, processes=3)
    assert result.returncode != 0
    line = "--batch-size must be a multiple of 3 (processes)"
    # From each rank, in any order; the first that fails ends the others.
    assert result.stderr.replace("\n", "") in [times * line for times in (1, 2, 3)]
    assert result.stdout == ""


@pytest.mark.parametrize("stage", DISTRIBUTED)
def test_refused_before_the_others_have_joined(stage, data, tmp_path):
    """This rank is alone: whoever waited for the other two would wait for minutes."""
    flags = ["--data", data(EVEN), "--out", tmp_path / "out"]
    words = command(stage, *flags, processes=0)
    result = call(words, env={**ENV, "RANK": "0", "WORLD_SIZE": "3"}, timeout=60)
    refused(result, "--batch-size must be a multiple of 3 (processes)")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("stage", ["01_cpu", "04_ddp"])
def test_output_that_cannot_be_written(stage, data, tmp_path):
    (tmp_path / "file").write_text("in the way")
    flags = ["--data", data(EVEN), "--out", tmp_path / "file" / "out"]
    result = run(stage, *flags)
    assert result.returncode != 0
    assert f"Not a directory: '{tmp_path}/file/out'" in result.stderr
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("stage", ["01_cpu", "04_ddp"])
def test_a_learners_assert_shows_its_line(stage, data, tmp_path):
    wrong = "assert images.shape == (64, 1, 28, 28)"
    line = "        loss = nn.functional.cross_entropy(model(images), labels)\n"
    path = edited(stage, tmp_path, (line, f"        {wrong}\n{line}"))
    result = run(stage, "--data", data(EVEN), "--out", tmp_path, path=path)
    assert result.returncode != 0
    assert "Traceback" in result.stderr
    assert f"    {wrong}\n" in result.stderr
    assert "AssertionError" in result.stderr


@pytest.mark.parametrize("stage", DISTRIBUTED)
def test_a_learners_print_is_seen_from_every_rank(stage, data, tmp_path):
    line = "    dist.init_process_group(args.backend)\n"
    path = edited(stage, tmp_path, (line, f"{line}    print(f'here is {{rank}}')\n"))
    flags = ["--data", data(EVEN), "--out", tmp_path / "out", "--epochs", 1]
    result = run(stage, *flags, "--batch-size", 63, processes=3, path=path)
    assert result.returncode == 0, result.stderr
    said = re.findall(r"here is \d", result.stdout)  # lines may run into each other
    assert sorted(said) == [f"here is {rank}" for rank in range(3)]


@pytest.fixture
def alone(monkeypatch, data, tmp_path):
    """A function that has stage 05 evaluate a checkpoint, here, as the only rank."""
    stage = load("05_ddp_inference")
    environment = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    start = stage.dist.init_process_group
    monkeypatch.setattr(
        stage.dist,
        "init_process_group",
        lambda backend: start(
            backend, store=stage.dist.HashStore(), rank=0, world_size=1
        ),
    )

    def evaluate(path):
        flags = ["--data", data(EVEN), "--out", tmp_path / "out", "--checkpoint", path]
        monkeypatch.setattr("sys.argv", ["mnist.py", *map(str, flags)])
        try:
            stage.main(stage.parse_args())
        finally:
            stage.dist.destroy_process_group()

    return evaluate


def test_foreign_checkpoints(alone, trained, tmp_path, capsys):
    """The error says why a checkpoint does not fit, and nothing is evaluated."""
    good = weights(trained("01_cpu"))
    narrow = {**good, "layers.1.weight": torch.zeros(64, 784)}
    wrapped = {f"module.{name}": value for name, value in good.items()}
    cases = {
        "narrow": (narrow, "size mismatch for layers.1.weight"),
        "wrapped": (wrapped, "Unexpected key.*module.layers.1.weight"),
        "list": ([1, 2], "Expected state_dict to be dict-like"),
        "pickled module": (torch.nn.Linear(3, 4), "Weights only load failed"),
    }
    for name, (content, message) in cases.items():
        torch.save(content, tmp_path / name)
        with pytest.raises(Exception, match=f"(?s){message}"):
            alone(tmp_path / name)
    (tmp_path / "empty").touch()
    for name, error in ("empty", EOFError), ("missing", FileNotFoundError):
        with pytest.raises(error):
            alone(tmp_path / name)
    assert capsys.readouterr().out == ""
    torch.save(good, tmp_path / "good")
    alone(tmp_path / "good")
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'good'}  test ")
