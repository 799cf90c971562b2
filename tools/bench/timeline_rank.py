"""What `make trace` adds to each process: a profiler, and labels in its trace.

A label is `ROW|KIND`, the row of the timeline and what happens there. What the profiler
names by itself (the all-reduce, the optimizer, the data loader) has none.
"""

from multiprocessing.util import Finalize

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.profiler import profile, record_function

from tools.lab import standin
from tools.run.stages import DISTRIBUTED

HALVES = {3: "first half", 1: "second half"}  # of stage 6, by their number of layers


class Labels:
    """Labels in a trace: `begin` ends what was begun before in its row."""

    def __init__(self):
        self.open = {}

    def begin(self, row, kind):
        self.end(row)
        self.open[row] = record_function(f"{row}|{kind}")
        self.open[row].__enter__()

    def end(self, row):
        if row in self.open:
            self.open.pop(row).__exit__(None, None, None)


def row_name(stage, rank):
    """Return the name of a process's row."""
    return f"rank {rank}" if stage in DISTRIBUTED else "process"


def needs_standin(stage):
    """Return whether this machine has too few GPUs to show what a stage does."""
    return stage == "03_dp" and torch.cuda.device_count() < 2


def standin_data_parallel(labels, row):
    """Return a stand-in for nn.DataParallel, with two copies and its steps labelled."""

    class DataParallel(standin.DataParallel):
        def forward(self, images):
            labels.begin(row, "scatter")
            parts = images.chunk(2)
            labels.begin(row, "replicate")  # what moves the weights to each GPU
            for weights in self.module.parameters():
                weights.detach().clone()
            labels.end(row)
            outputs = []
            for copy, part in enumerate(parts):
                labels.begin(f"copy {copy}", "forward")
                outputs.append(self.module(part))
                labels.end(f"copy {copy}")
            labels.begin(row, "gather")
            result = standin.gather(outputs)
            labels.end(row)
            return result

    return DataParallel


def instrument(rank, stage, folder):
    """Have this process label what it does, and leave its trace in `folder`."""
    labels, row = Labels(), row_name(stage, rank)
    if needs_standin(stage):
        nn.DataParallel = standin_data_parallel(labels, row)

    def forward_row(module):  # where its forward pass is drawn, or None
        if stage == "06_model_parallel":
            return HALVES.get(len(module)) if type(module) is nn.Sequential else None
        return row if type(module).__name__ == "Net" and stage != "03_dp" else None

    def forward_begins(module, _):
        if where := forward_row(module):
            labels.begin(where, "forward")

    def forward_ends(module, _, output):
        if where := forward_row(module):
            labels.end(where)
            if where != row and output.requires_grad:
                output.register_hook(lambda _: half_begins_backward(where))

    def half_begins_backward(where):  # the gradient of its output is there
        labels.end("second half")
        labels.begin(where, "backward")

    def backward(self, *args, original=torch.Tensor.backward, **options):
        if stage != "06_model_parallel":
            labels.begin(row, "backward")
        original(self, *args, **options)
        for name in row, *HALVES.values():
            labels.end(name)

    def to(self, *args, original=torch.Tensor.to, **options):
        with record_function(f"{row}|copy"):
            return original(self, *args, **options)

    register_module_forward_pre_hook(forward_begins)
    register_module_forward_hook(forward_ends)
    torch.Tensor.backward, torch.Tensor.to = backward, to
    profiler = profile()  # the CPU, and the GPUs where there are any
    profiler.start()

    def leave():
        profiler.stop()
        profiler.export_chrome_trace(str(folder / f"{rank}.json"))

    # A process of multiprocessing leaves without the functions of atexit.
    Finalize(None, leave, exitpriority=10)
