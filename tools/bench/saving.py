"""How long training stands still for a checkpoint, of the model of stage 12.

    torchrun --standalone --nproc-per-node=2 tools/bench/saving.py 32768

With so many hidden units. In seconds on rank 0, medians of 7: a call of `dcp.save`, a
call of `dcp.async_save`, and how long after this call its checkpoint is complete.
Under torchrun, from the root of the repository.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard

ROUNDS = 7


def take_a_step(stage, hidden):
    """Return a sharded model and its optimizer, with momentum, after one step."""
    model = stage.Net(hidden)
    for module in (model.layers[1], model.layers[3], model):
        fully_shard(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.zeros(8, 28, 28)
    labels = torch.zeros(8, dtype=torch.long)
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    return model, optimizer


def measure(state, folder, group):
    """Return the seconds of a save, of an asynchronous call, and until it is done."""
    if dist.get_rank() == 0:  # of the round before
        for path in folder.iterdir():
            shutil.rmtree(path)
    dist.barrier()
    start = time.perf_counter()
    dcp.save(state, checkpoint_id=folder / "save")
    saved = time.perf_counter() - start
    dist.barrier()
    start = time.perf_counter()
    saving = dcp.async_save(
        state, checkpoint_id=folder / "async_save", process_group=group
    )
    called = time.perf_counter() - start
    saving.result()
    return saved, called, time.perf_counter() - start


def main():
    sys.path.insert(0, os.getcwd())
    from tools.run.stages import load

    dist.init_process_group("gloo")
    group = dist.new_group(backend="gloo")
    folders = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folders)
    folder = Path(folders[0])
    stage = load("12_sharded_checkpoint")
    state = stage.parts(*take_a_step(stage, int(sys.argv[1])))
    measure(state, folder, group)  # a warm-up
    rounds = [measure(state, folder, group) for _ in range(ROUNDS)]
    dist.barrier()
    if dist.get_rank() == 0:
        size = sum(path.stat().st_size for path in (folder / "save").iterdir())
        saved, called, done = map(median, zip(*rounds, strict=True))
        print(f"{size / 1e6:.0f} MB on {dist.get_world_size()} ranks")
        print(f"dcp.save        {saved:.3f} s")
        print(f"dcp.async_save  {called:.3f} s, complete after {done:.3f} s")
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
