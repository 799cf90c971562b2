"""What `make trace` adds to each process: a profiler, and labels in its trace.

A label is a kind of work. A label `HALF|KIND` is for the row of a half of the model.
What the profiler names by itself (messages, the optimizer, the data loader) has none.
"""

from multiprocessing.util import Finalize

import torch
from torch import nn
from torch.profiler import profile, record_function

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


def linear(inputs, outputs):
    """Return a layer of stage 6: for the last one, as much work as the first has."""
    if outputs == 10:
        return nn.Sequential(LINEAR(inputs, 784), LINEAR(784, outputs))
    return LINEAR(inputs, outputs)


def add_label(owner, method, label):
    """Put a label around each call of a method of the class `owner`."""
    function = getattr(owner, method)

    def labeled(*arguments, **options):
        with record_function(label):
            return function(*arguments, **options)

    setattr(owner, method, labeled)


def label_forward():
    """Label the forward pass of the network."""
    original = nn.Module.__call__

    def call(module, *arguments, **options):
        if type(module).__name__ not in ("Net", "FSDPNet"):
            return original(module, *arguments, **options)
        with record_function("forward" if torch.is_grad_enabled() else "evaluation"):
            return original(module, *arguments, **options)

    nn.Module.__call__ = call


def label_halves():
    """Label the forward pass of each half of the model in stage 6.

    Where its backward pass begins, there is a label without a length.
    """
    original = nn.Sequential.__call__

    def call(module, *arguments):
        half = HALVES.get(len(module))
        if half is None:
            return original(module, *arguments)
        kind = "forward" if torch.is_grad_enabled() else "evaluation"
        with record_function(f"{half}|{kind}"):
            output = original(module, *arguments)
        if output.requires_grad:
            output.register_hook(lambda _: mark(f"{half}|{BACKWARD_BEGINS}"))
        return output

    nn.Sequential.__call__ = call


def mark(label):
    """Leave a label without a length."""
    with record_function(label):
        pass


def instrument(rank, stage, paths):
    """Have this process label what it does, and write its trace to paths[rank]."""
    add_label(torch.Tensor, "to", "copy")
    add_label(torch.Tensor, "backward", "backward")
    if stage == "03_dp":
        for method, kind in DATA_PARALLEL.items():
            add_label(nn.DataParallel, method, kind)
    elif stage == "06_model_parallel":
        label_halves()
        nn.Linear = linear
    else:
        label_forward()
    profiler = profile()  # the CPU, and the GPUs where there are any
    profiler.start()

    def leave():
        profiler.stop()
        profiler.export_chrome_trace(str(paths[rank]))

    # A process of multiprocessing leaves without the functions of atexit.
    Finalize(None, leave, exitpriority=10)
