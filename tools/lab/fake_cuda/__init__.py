"""Fake GPUs: `gpus` has this process believe in some.

Tensors are where the script puts them, and operations refuse what CUDA and NCCL refuse.
The CPU computes, so all numbers are right. Mixed precision is accepted, and computes as
without it.

state       how many GPUs there are, which is current, what time it is
clock       streams, events and Python's clocks
placement   the fake device of each tensor
operations  what CUDA and NCCL refuse
parallel    nn.DataParallel and process groups
api         the public names of torch.cuda and torch.accelerator
"""

import os
import time
from functools import partial

import torch

from tools.lab.fake_cuda import api, clock, operations, parallel, placement
from tools.lab.fake_cuda.clock import MATMUL
from tools.lab.fake_cuda.state import STATE
from tools.lab.patches import replace

__all__ = ["FAST", "MATMUL", "fast_gpu", "gpus", "machines", "one_gpu", "one_gpu_each"]
__all__ += ["slow_disk", "three_gpus", "two_gpus", "two_gpus_each"]
FAST = 3.0  # times as fast as the other GPUs


def gpus(count, log, usable=True, speed=1.0):
    """Have torch believe in `count` GPUs.

    `log` is called with the kind and the facts of an event: what layers do, waits and
    replicas. GPUs that are not `usable` are seen by NVML alone, as with a driver that
    is too old for this PyTorch. `speed` divides the time of a product of matrices.
    """
    if not (usable and count):
        torch.cuda.is_available = lambda: False
        torch.cuda.device_count = lambda: count
        return
    STATE.count = count
    STATE.log = log
    STATE.speed = speed
    clock.install()
    api.install()
    placement.install()
    parallel.install()
    operations.install()


one_gpu = partial(gpus, 1)
two_gpus = partial(gpus, 2)
three_gpus = partial(gpus, 3)
fast_gpu = partial(gpus, 1, speed=FAST)


def slow_disk(log):
    """Have torch.save take 0.05 s longer, and time.sleep no time at all.

    So a rank that has to wait for a file must be told when it is there.
    """
    sleep = time.sleep

    def save(original, *args, **options):
        sleep(0.05)
        return original(*args, **options)

    replace("torch:save", save)
    replace("time:sleep", lambda _, seconds: None)


def machines(log, ranks=1):
    """Have each machine run `ranks` ranks; they share the folders."""
    rank = int(os.environ["RANK"])
    os.environ["GROUP_RANK"] = str(rank // ranks)  # which machine
    os.environ["LOCAL_RANK"] = str(rank % ranks)
    os.environ["LOCAL_WORLD_SIZE"] = str(ranks)


def gpus_each(count, log):
    """Have each machine have `count` GPUs, and a rank for each of them."""
    machines(log, ranks=count)
    gpus(count, log)


one_gpu_each = partial(gpus_each, 1)
two_gpus_each = partial(gpus_each, 2)
