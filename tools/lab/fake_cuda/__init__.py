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

import torch

from onecurve.api import replace
from tools.lab.fake_cuda import devices, operations, parallel, placement
from tools.lab.fake_cuda.devices import MATMUL as MATMUL
from tools.lab.fake_cuda.devices import STATE

CLASSES = 10


def gpus(count, log, matmul=MATMUL):
    """Have torch believe in `count` GPUs, which take `matmul` ms for a product.

    `log` is called with the kind and the facts of an event: what layers do, waits and
    replicas.
    """
    STATE.begin(count, log, matmul)
    for part in devices, placement, parallel, operations:
        part.install()


one_gpu = partial(gpus, 1)
slow_gpu = partial(gpus, 1, matmul=2 * MATMUL)
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


def other_hashes(log):
    """Have texts other hashes, as in a process with a different PYTHONHASHSEED."""
    replace("builtins:hash", lambda original, one: original(one) ^ isinstance(one, str))


def dropout(log):
    """Have each machine run a rank; write down which inputs of the last layer are 0."""
    machines(log)

    def linear(original, x, weight, bias=None):
        if len(weight) == CLASSES:
            kept = ["".join(map(str, row)) for row in (x != 0).int().tolist()]
            log("hidden", training=torch.is_grad_enabled(), kept=kept)
        return original(x, weight, bias)

    replace("torch.nn.functional:linear", linear)


def dropout_again(log):
    """Do the same in a process with other hashes."""
    other_hashes(log)
    dropout(log)


def two_gpus_each(log):
    """Have each machine have two GPUs, and a rank for each of them."""
    machines(log, ranks=2)
    two_gpus(log)
