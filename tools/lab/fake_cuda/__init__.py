"""Fake GPUs: `gpus` has this process believe in some.

Tensors are where the script puts them, and operations refuse what CUDA and NCCL refuse,
in the words of PyTorch 2.15. The CPU computes, so all numbers are right.

devices     how many GPUs there are, what time it is, the names of torch.cuda
placement   the fake device of each tensor
operations  what CUDA refuses
parallel    nn.DataParallel, and process groups with NCCL
"""

import os
import time
from functools import partial

from onecurve.api import replace
from tools.lab.fake_cuda import devices, operations, parallel, placement
from tools.lab.fake_cuda.devices import MATMUL as MATMUL
from tools.lab.fake_cuda.devices import STATE


def gpus(count, log):
    """Have torch believe in `count` GPUs.

    `log` is called with the kind and the facts of an event: what layers do, waits and
    replicas.
    """
    STATE.begin(count, log)
    for part in devices, placement, parallel, operations:
        part.install()


one_gpu = partial(gpus, 1)
two_gpus = partial(gpus, 2)
three_gpus = partial(gpus, 3)


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


def two_gpus_each(log):
    """Have each machine have two GPUs, and a rank for each of them."""
    machines(log, ranks=2)
    two_gpus(log)
