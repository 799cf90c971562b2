"""Promise: six scripts, one loss curve."""

import pytest
import torch

from conftest import (
    DISTRIBUTED,
    EVEN,
    PARTIAL,
    ROOT,
    assert_close,
    assert_identical,
    edited,
    rows,
    run,
    run_edited,
    weights,
)
from tools.run.stages import STAGES

CASES = [(EVEN, 64), (PARTIAL, 96)]
SINGLE = [stage for stage in STAGES if stage not in DISTRIBUTED]


@pytest.mark.parametrize(("size", "batch"), CASES)
@pytest.mark.parametrize("stage", SINGLE[1:])
def test_one_process_gives_identical_metrics_and_weights(trained, stage, size, batch):
    assert_identical(trained(stage, size, batch), trained("01_cpu", size, batch))


@pytest.mark.parametrize(("size", "batch"), CASES)
@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("stage", DISTRIBUTED)
def test_ranks_give_the_same_in_float64(trained, stage, processes, size, batch):
    """997 test images are a prime number: a padding sampler would count up to 1,000."""
    out = trained(stage, size, batch, processes, float64=True)
    reference = trained("01_cpu", size, batch, float64=True)
    assert_close(out, reference)
    assert {tensor.dtype for tensor in weights(out).values()} == {torch.float64}
    assert len(rows(out)) == 2


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_stage_learns_prints_and_writes(trained, stage):
    """On the sample, accuracy passes 80% in three epochs and the loss always falls."""
    out = trained(stage, None, epochs=3)
    lines = (out / "stdout").read_text().splitlines()
    assert lines[0].startswith(f"{stage}: ")
    assert lines[0].endswith(", 64 images a step, 4000 train, 1000 test")
    assert lines[-1] == f"saved {out / 'model.pth'}"
    losses = [loss for _, loss, *_ in rows(out)]
    assert losses[0] > losses[1] > losses[2]
    assert f"{losses[-1]:.6f}" == "0.436164"
    assert rows(out)[-1][2:] == [876, 1000]
    assert len(lines) == 5
    for line, (epoch, loss, correct, total) in zip(lines[1:4], rows(out), strict=True):
        start = f"epoch {epoch}/3  loss {loss:.6f}  test {correct}/{total}  "
        assert line.startswith(start)
        assert line.endswith(" s")
    assert (out / "stderr").read_text() == ""  # no progress bar outside a terminal
    table = (out / "metrics.csv").read_bytes()
    assert table.startswith(b"epoch,loss,correct,total,seconds\n1,")
    assert b"\r" not in table
    assert all(type(value) is torch.Tensor for value in weights(out).values())
    assert all(value.device.type == "cpu" for value in weights(out).values())
    files = {"metrics.csv", "model.pth", "stdout", "stderr"}
    assert {path.name for path in out.iterdir()} == files


@pytest.mark.parametrize(
    ("stage", "changes", "flags", "loss"),
    [
        ("04_ddp", [("        sampler.set_epoch(epoch)", "        #")], [], "0.439645"),
        # Summed gradients, as FSDP had in PyTorch 2.8, are twice the mean.
        ("07_fsdp", [], ["--lr", 0.2], "0.335811"),
    ],
)
def test_a_mistake_moves_the_curve_as_the_readme_says(
    stage, changes, flags, loss, tmp_path
):
    result = run_edited(stage, ROOT / "data/sample", tmp_path, changes, *flags)
    assert f"epoch 3/3  loss {loss}  " in result.stdout


@pytest.mark.parametrize("stage", ["01_cpu", "04_ddp"])
def test_metrics_are_written_as_each_epoch_ends(stage, data, tmp_path):
    """A run that fails in epoch 2 keeps epoch 1's line."""
    stop = "        start = time.perf_counter()\n"
    failing = stop + "        assert epoch < 2\n"
    path = edited(stage, tmp_path, (stop, failing))
    out = tmp_path / "out"
    (tmp_path / "out").mkdir()
    header = "epoch,loss,correct,total,seconds\n"
    (out / "metrics.csv").write_text(f"{header}1,0.5,990,997,1.5\n")  # an earlier run
    result = run(stage, "--data", data(EVEN), "--out", out, path=path)
    assert result.returncode != 0
    assert (out / "metrics.csv").read_text().count("\n") == 2
    assert len(rows(out)) == 1
    assert [file.name for file in out.iterdir()] == ["metrics.csv"]
