"""What `make trace` adds to each process: a profiler, and labels in its trace.

A label is a kind of work. What the profiler names by itself (messages, the optimizer,
the data loader) has none.
"""

from multiprocessing.util import Finalize

import torch
from torch import nn
from torch.profiler import profile, record_function

NETWORKS = "Net", "FSDPNet", "DataParallel", "GPT", "FSDPGPT"  # names of its class


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
    """Have this process label what it does; write its trace to `pattern`, with RANK."""
    label_forward()
    label_backward()
    profiler = profile()  # the CPU, and the GPUs where there are any
    profiler.start()

    def leave():
        profiler.stop()
        profiler.export_chrome_trace(pattern.replace("RANK", str(rank)))

    # A process of multiprocessing leaves without the functions of atexit.
    Finalize(None, leave, exitpriority=10)
