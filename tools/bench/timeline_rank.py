"""What `make trace` adds to each process: a profiler, and labels in its trace.

A label is `ROW|KIND`, the row of the timeline and what happens there. What the profiler
names by itself (messages, the optimizer, the data loader) has none.
"""

from multiprocessing.util import Finalize

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.overrides import TorchFunctionMode
from torch.profiler import profile, record_function

from tools.run.launch import count_gpus
from tools.run.stages import BY_TORCHRUN

HALVES = {3: "first half", 1: "second half"}  # of stage 6, by their number of layers
LINEAR = nn.Linear
DATA_PARALLEL = {  # method of nn.DataParallel, which its forward pass calls -> kind
    "scatter": "scatter", "replicate": "replicate", "parallel_apply": "forward",
    "gather": "gather",
}  # fmt: skip


class Labels(TorchFunctionMode):
    """Labels in a trace: of copies and the backward pass, and others by `begin`, `end`."""

    def __init__(self, row):
        super().__init__()
        self.row, self.open = row, {}

    def begin(self, row, kind):
        """Begin a label; ends what was begun before in its row."""
        self.end(row)
        self.open[row] = record_function(f"{row}|{kind}")
        self.open[row].__enter__()

    def end(self, row):
        if row in self.open:
            self.open.pop(row).__exit__(None, None, None)

    def backward_after(self, output, row):
        """Begin a backward pass in a row when the gradient of its output is there.

        It ends that of the row which had `output`, or came before.
        """

        def begin(_):
            for other in self.open.keys() - {self.row}:
                self.end(other)
            self.begin(row, "backward")

        if output.requires_grad:
            output.register_hook(begin)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kind = {torch.Tensor.to: "copy", torch.Tensor.backward: "backward"}.get(func)
        if kind:
            self.begin(self.row, kind)
        result = func(*args, **(kwargs or {}))
        for row in {"copy": [self.row], "backward": list(self.open)}.get(kind, []):
            self.end(row)
        return result


def row_name(stage, rank):
    """Return the name of a process's row."""
    return f"rank {rank}" if stage in BY_TORCHRUN else "process"


def standin(stage):
    """Return what runs in place of a stage that would not show what it does, or ""."""
    if stage == "03_dp" and count_gpus() < 2:
        return "two copies on one device take turns; two GPUs work at once"
    if stage == "06_model_parallel":
        return "the second half has as much work as the first"
    return ""


class TwoCopies(nn.DataParallel):
    """nn.DataParallel with two copies on one device, one after the other."""

    labels = None  # of this process

    def forward(self, images):
        parts = self.scatter(images)
        self.replicate()
        return self.gather(self.parallel_apply(parts))

    def scatter(self, images):
        return images.chunk(2)

    def replicate(self):  # what moves the weights to each GPU
        for weights in self.module.parameters():
            weights.detach().clone()

    def parallel_apply(self, parts):
        outputs = []
        for row, part in zip(("copy 0", "copy 1"), parts, strict=True):
            with record_function(f"{row}|forward"):
                outputs.append(self.module(part))
            self.labels.backward_after(outputs[-1], row)
        return outputs

    def gather(self, outputs):
        return torch.cat(outputs)


class LargeLayer(nn.Sequential):
    """In place of stage 6's last layer: as much work as its first layer has."""

    def __init__(self, inputs, outputs):
        super().__init__(LINEAR(inputs, 784), LINEAR(784, outputs))


def label_data_parallel(wrapper, row):
    """Label the four parts of the forward pass of nn.DataParallel, or of TwoCopies.

    The threads in which GPUs are asked have no profiler: `parallel_apply` is one label.
    """
    for method, kind in DATA_PARALLEL.items():
        labelled = record_function(f"{row}|{kind}")(getattr(wrapper, method))
        setattr(wrapper, method, labelled)


def instrument(rank, stage, folder):
    """Have this process label what it does, and leave its trace in `folder`."""
    row = row_name(stage, rank)
    labels = Labels(row)
    if stage == "03_dp":
        if standin(stage):
            nn.DataParallel, TwoCopies.labels = TwoCopies, labels
        label_data_parallel(nn.DataParallel, row)
    elif standin(stage):
        nn.Linear = lambda a, b: LargeLayer(a, b) if b == 10 else LINEAR(a, b)

    def forward_row(module):  # where its forward pass is drawn, or None
        if stage == "06_model_parallel":
            return HALVES.get(len(module)) if type(module) is nn.Sequential else None
        name = type(module).__name__  # FSDPNet, once FSDP has it
        return row if name in ("Net", "FSDPNet") and stage != "03_dp" else None

    def forward_begins(module, _):
        if where := forward_row(module):
            labels.begin(where, "forward" if torch.is_grad_enabled() else "evaluation")

    def forward_ends(module, _, output):
        if where := forward_row(module):
            labels.end(where)
            if where in HALVES.values():
                labels.backward_after(output, where)

    register_module_forward_pre_hook(forward_begins)
    register_module_forward_hook(forward_ends)
    labels.__enter__()
    profiler = profile()  # the CPU, and the GPUs where there are any
    profiler.start()

    def leave():
        profiler.stop()
        profiler.export_chrome_trace(str(folder / f"{rank}.json"))

    # A process of multiprocessing leaves without the functions of atexit.
    Finalize(None, leave, exitpriority=10)
