"""Fake GPUs: `gpus` makes PyTorch in this process see some.

Tensors are where the script puts them, and operations raise CUDA's and NCCL's errors,
in the words of PyTorch 2.15. The CPU computes all results.

devices     the GPUs, their clock, the names of torch.cuda
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
from tools.lab.fake_cuda.devices import MATMUL, STATE

CLASSES = 10


def gpus(count, log, matmul=MATMUL):
    """Make PyTorch see `count` GPUs that need `matmul` ms per matrix product.

    `log` is called with the kind and facts of each event.
    """
    STATE.begin(count, log, matmul)
    for part in devices, placement, parallel, operations:
        part.install()


one_gpu = partial(gpus, 1)
slow_gpu = partial(gpus, 1, matmul=2 * MATMUL)
two_gpus = partial(gpus, 2)
three_gpus = partial(gpus, 3)


def slow_disk(log):
    """Make torch.save 0.05 s slower and time.sleep return at once."""

    def save(original, *args, **options):
        # Processor time: on a busy machine, the other ranks are slower as well.
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            os.sched_yield()
        return original(*args, **options)

    replace("torch:save", save)
    replace("time:sleep", lambda _, seconds: None)  # so it is no way to wait for a file


def machines(log, ranks=1):
    """Spread the ranks over machines, `ranks` on each, with shared folders."""
    rank = int(os.environ.get("RANK", "0"))
    os.environ["GROUP_RANK"] = str(rank // ranks)  # which machine
    os.environ["LOCAL_RANK"] = str(rank % ranks)
    os.environ["LOCAL_WORLD_SIZE"] = str(ranks)


def other_hashes(log):
    """Change the hashes of strings, like a different PYTHONHASHSEED."""
    replace("builtins:hash", lambda original, one: original(one) ^ isinstance(one, str))


def dropout(log):
    """Run one rank per machine; record which inputs of the last layer are 0."""
    machines(log)

    def linear(original, x, weight, bias=None):
        if len(weight) == CLASSES:
            kept = ["".join(map(str, row)) for row in (x != 0).int().tolist()]
            log("hidden", training=torch.is_grad_enabled(), kept=kept)
        return original(x, weight, bias)

    replace("torch.nn.functional:linear", linear)


def dropout_again(log):
    """Do the same with different hashes."""
    other_hashes(log)
    dropout(log)


def two_gpus_each(log):
    """Give each machine two GPUs and two ranks."""
    machines(log, ranks=2)
    two_gpus(log)
