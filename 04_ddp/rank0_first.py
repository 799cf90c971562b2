"""Prepare data on rank 0, longer than the timeout with which other ranks wait."""

import time
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=2))  # short, for the example
rank = dist.get_rank()  # without a shared disk: LOCAL_RANK, and a group on each node
patient = dist.new_group(backend="gloo", timeout=timedelta(hours=12))


@contextmanager
def rank0_first():
    """Run a block on rank 0, then on the other ranks."""
    if rank > 0:
        dist.barrier(patient)
    yield
    if rank == 0:
        dist.barrier(patient)


start = time.perf_counter()
with rank0_first():
    if rank == 0:  # or if its file is missing
        time.sleep(4)  # downloads or tokenizes
if rank == 1:
    print(f"rank 1 waited {time.perf_counter() - start:.0f} seconds")
dist.barrier(patient)
dist.destroy_process_group()
