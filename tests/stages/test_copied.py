"""Promise: common changes to a script work on every rank.

People usually add a scheduler first, and a launcher may show each process one GPU.
"""

import json
import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from conftest import EVEN, edited, run
from tools.run.stages import CPU_PROCESSES, TRANSFORMER, script

OF_MNIST = [stage for stage in CPU_PROCESSES if stage not in TRANSFORMER.values()]
LOOP = re.compile(r"(?m)^    for epoch in .*\n(?:        .*\n)+")  # the epoch loop


@pytest.mark.parametrize("stage", OF_MNIST)
def test_a_scheduler_steps_on_every_rank(stage, data, tmp_path):
    """No rank leaves the loop early, so every rank reaches the step at its end."""
    loop = LOOP.search(script(stage).read_text())[0]
    optimizer = "    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)\n"
    schedule = "torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)"
    step = "        scheduler.step()\n"
    said = "    print(f'rank {rank} at {scheduler.get_last_lr()}')\n"
    changes = [
        (optimizer, f"{optimizer}    scheduler = {schedule}\n"),
        (loop, loop + step + said),
    ]
    path = edited(stage, tmp_path, *changes)
    flags = ["--data", data((256, 64)), "--out", tmp_path / "out", "--epochs", 3]
    result = run(stage, *flags, path=path)
    assert result.returncode == 0, result.stderr
    found = re.findall(r"rank (\d) at \[(\S*)\]", result.stdout)
    expected = [(str(rank), "0.0125") for rank in range(CPU_PROCESSES[stage])]
    assert sorted(found) == expected


def pretend(rank, folder):
    """Show the script one GPU; log its device and backend, then exit."""
    chosen = []

    def join(backend):
        (Path(folder) / f"rank{rank}").write_text(json.dumps([backend, *chosen]))
        raise SystemExit(0)

    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.set_device = chosen.append
    dist.init_process_group = join


@pytest.mark.parametrize("stage", OF_MNIST)
def test_the_backend_does_not_depend_on_how_many_gpus_a_rank_sees(
    stage, data, tmp_path
):
    """With `srun --gpus-per-task=1`, every rank sees only its own GPU, as 0."""
    flags = ["--data", data(EVEN), "--out", tmp_path / "out"]
    result = run(stage, *flags, prepare=(pretend, tmp_path))
    assert (result.returncode, result.stderr) == (0, "")
    for rank in range(CPU_PROCESSES[stage]):
        found = json.loads((tmp_path / f"rank{rank}").read_text())
        assert found == ["nccl", 0]
