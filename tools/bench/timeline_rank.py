"""What `make trace` adds to each process: a profiler, and labels in its trace.

A label is `ROW|KIND`, the row of the timeline and what happens there. What the profiler
names by itself (messages, the optimizer, the data loader) has none.
"""

import functools
from multiprocessing.util import Finalize

import torch
from torch import nn
from torch.profiler import profile, record_function

from tools.run.stages import CPU_PROCESSES

BACKWARD_BEGINS = "backward begins"  # a label without a length
HALVES = {3: "first half", 1: "second half"}  # of stage 6, by their number of layers
LINEAR = nn.Linear
# Method of nn.DataParallel, called in its forward pass -> kind. The threads that launch
# the work on GPUs have no profiler: their work has one label.
DATA_PARALLEL = {
    "scatter": "scatter",
    "replicate": "replicate",
    "parallel_apply": "forward",
    "gather": "gather",
}


def row_name(stage, rank):
    """Return the name of a process's row."""
    return f"rank {rank}" if stage in CPU_PROCESSES else "process"


class LargeLayer(nn.Sequential):
    """In place of stage 6's last layer: as much work as its first layer has."""

    def __init__(self, inputs, outputs):
        super().__init__(LINEAR(inputs, 784), LINEAR(784, outputs))


def add_label(owner, method, label):
    """Put a label around each call of a method of the class `owner`."""
    function = getattr(owner, method)

    @functools.wraps(function)
    def labeled(*arguments, **options):
        with record_function(label):
            return function(*arguments, **options)

    setattr(owner, method, labeled)


def label_forward(stage, row):
    """Label the forward pass of the network, or of each half of it in stage 6."""
    original = nn.Module.__call__

    def call(module, *arguments, **options):
        name = type(module).__name__
        where = None
        if stage == "06_model_parallel" and type(module) is nn.Sequential:
            where = HALVES.get(len(module))
        elif stage != "06_model_parallel" and name in ("Net", "FSDPNet"):
            where = row
        if where is None:
            return original(module, *arguments, **options)
        kind = "forward" if torch.is_grad_enabled() else "evaluation"
        with record_function(f"{where}|{kind}"):
            output = original(module, *arguments, **options)
        if where != row and output.requires_grad:
            output.register_hook(lambda _: mark(f"{where}|{BACKWARD_BEGINS}"))
        return output

    nn.Module.__call__ = call


def mark(label):
    """Leave a label without a length."""
    with record_function(label):
        pass


def instrument(rank, stage, paths):
    """Have this process label what it does, and write its trace to paths[rank]."""
    row = row_name(stage, rank)
    add_label(torch.Tensor, "to", f"{row}|copy")
    add_label(torch.Tensor, "backward", f"{row}|backward")
    if stage == "03_dp":
        for method, kind in DATA_PARALLEL.items():
            add_label(nn.DataParallel, method, f"{row}|{kind}")
    else:
        label_forward(stage, row)
    if stage == "06_model_parallel":
        nn.Linear = lambda a, b: LargeLayer(a, b) if b == 10 else LINEAR(a, b)
    profiler = profile()  # the CPU, and the GPUs where there are any
    profiler.start()

    def leave():
        profiler.stop()
        profiler.export_chrome_trace(str(paths[rank]))

    # A process of multiprocessing leaves without the functions of atexit.
    Finalize(None, leave, exitpriority=10)
