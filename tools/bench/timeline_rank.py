"""Profile each process of `make trace` and label its work.

The profiler itself labels messages, the optimizer and the data loader, so we don't.
"""

from multiprocessing.util import Finalize

import torch
from torch import nn
from torch.profiler import profile, record_function

NETWORKS = "Net", "FSDPNet", "DataParallel", "GPT", "FSDPGPT"  # class names


def label_forward():
    """Label the forward pass of the network."""
    original = nn.Module.__call__

    def call(module, *arguments, **options):
        if type(module).__name__ not in NETWORKS:
            return original(module, *arguments, **options)
        with record_function("forward" if torch.is_grad_enabled() else "evaluation"):
            return original(module, *arguments, **options)

    nn.Module.__call__ = call


def label_backward():
    """Label the backward pass."""
    original = torch.Tensor.backward

    def backward(*arguments, **options):
        with record_function("backward"):
            original(*arguments, **options)

    torch.Tensor.backward = backward


def instrument(rank, pattern):
    """Profile and label this process; write the trace to `pattern` with its RANK."""
    label_forward()
    label_backward()
    profiler = profile()  # the CPU and any GPUs
    profiler.start()

    def leave():
        profiler.stop()
        profiler.export_chrome_trace(pattern.replace("RANK", str(rank)))

    # A multiprocessing process exits without calling atexit functions.
    Finalize(None, leave, exitpriority=10)
