"""What a rank writes down while it is watched: one event per line, as JSON.

Each line is written at once, so that a run that hangs has told what it did.
`tools.lab.run_record` reads the events. Nothing in here knows an exercise, or MNIST:
`tools.lab.image_recorder` does.
"""

import hashlib
import json
import os
import sys
from inspect import signature
from pathlib import Path
from time import monotonic  # not the module's, which the fake GPUs replace

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from tools.lab.patches import COLLECTIVES
from tools.watch.events import local_part
from tools.watch.replace import replace

array = torch._C.TensorBase.numpy  # the fake GPUs refuse Tensor.numpy
WORKERS = ["num_workers", "prefetch_factor", "persistent_workers", "timeout"]
WORKERS += ["multiprocessing_context"]
FLOATS = {torch.float32, torch.float64}


def digest(weight):
    """Return a short digest of a tensor: equal tensors have equal ones."""
    with torch._C.DisableTorchFunction():  # unseen by the fake GPUs
        # a copy: FSDP frees the storage of its own, which NumPy would hold on to
        flat = local_part(weight).clone().flatten().view(torch.uint8)
        return hashlib.sha256(array(flat).tobytes()).hexdigest()[:12]


def squares(gradient):
    """Return the sum of the squares of what this rank has of a gradient, or of None."""
    if gradient is None:
        return 0
    with torch._C.DisableTorchFunction():  # unseen by the fake GPUs
        part = local_part(gradient).clone()
        if part.dtype not in FLOATS:  # NumPy has no bfloat16; a fake GPU sees this
            part = part.double()
        return float((array(part).astype("float64") ** 2).sum())


def state_of(optimizer):
    """Return how many numbers of state an optimizer has on this rank."""
    held = 0
    for state in optimizer.state.values():
        # None: another rank's, in ZeroRedundancyOptimizer
        for value in (state or {}).values():
            if isinstance(value, torch.Tensor):
                held += local_part(value).numel()
    return held


def with_dtype_of_weight(module, args):
    """Return a module's arguments, the first as float64 where its weight is.

    The lab runs a script in float64, in which its own `.float()` is an error.
    """
    weight = module._parameters.get("weight")
    if weight is None or not args or not isinstance(args[0], torch.Tensor):
        return args
    if {args[0].dtype, weight.dtype} == FLOATS:
        return args[0].to(weight.dtype), *args[1:]
    return args


class Recorder:
    """Writes down what this process does, in the file folder/rankN.

    `path` is the script's. Nothing that the script computes is changed by it, but for
    `with_dtype_of_weight`, data loaders' workers and what `reduce` leaves undefined.
    """

    def __init__(self, rank, folder, path):
        self.rank = rank
        self.salt = os.urandom(8)  # of this process
        self.path = path
        self.events = open(folder / f"rank{rank}", "w", buffering=1)  # noqa: SIM115
        self.depth = 0  # of calls of modules
        self.names = {}  # id of a parameter -> its name in the network
        self.pending = {}  # collectives that nobody has waited for

    def log(self, kind, **facts):
        """Write an event. `time` is the same clock in all ranks, in seconds."""
        event = {"kind": kind, "time": monotonic(), **facts}
        self.events.write(json.dumps(event) + "\n")

    def line(self):
        """Return the line of the script that is being executed, or None."""
        frame = sys._getframe(2)
        while frame and frame.f_code.co_filename != self.path:
            frame = frame.f_back
        return frame and frame.f_lineno

    def before_step(self, optimizer, args, kwargs):
        """Before a step of an optimizer."""
        self.log("before_step", state=state_of(optimizer))

    def step(self, optimizer, args, kwargs):
        """After a step of an optimizer."""
        weights = []
        for group in optimizer.param_groups:
            weights += group["params"]
        digests = {}
        for number, weight in enumerate(weights):
            digests[self.names.get(id(weight), str(number))] = digest(weight)
        self.log(
            "step",
            digest=digests,
            squares=sum(squares(weight.grad) for weight in weights),
            lr=float(optimizer.param_groups[0]["lr"]),
            state=state_of(optimizer),
            weights=sum(local_part(weight).numel() for weight in weights),
        )

    def module_call(self, original, module, *args, **kwargs):
        """Around a call of a module; the outermost one is the network's."""
        if not self.depth:
            self.forward_pass(module, self.inputs([*args, *kwargs.values()]))
        self.depth += 1
        try:
            return original(module, *with_dtype_of_weight(module, args), **kwargs)
        finally:
            self.depth -= 1

    def inputs(self, values):
        """Return the facts to write down of a network's arguments, as a dict."""
        return {}

    def forward_pass(self, module, facts):
        """Before a forward pass of the network."""
        weights = {}
        for name, weight in module.named_parameters():
            weights[name.removeprefix("module.")] = weight  # with DDP and without
        if not weights and not any(facts.values()):
            return
        digests = None
        if torch.is_grad_enabled():
            digests = {name: digest(weight) for name, weight in weights.items()}
            for name, weight in weights.items():
                self.names.setdefault(id(weight), name)
        self.log("pass", grad=torch.is_grad_enabled(), digest=digests, **facts)

    def wrapper_forward(self, original, wrapper, *args, **kwargs):
        """Around the forward pass of DDP and nn.DataParallel.

        With DDP it decides how many numbers the backward pass reduces: all or none.
        """
        grad = torch.is_grad_enabled()
        reduced = 0
        if grad and getattr(wrapper, "require_backward_grad_sync", False):
            weights = [w for w in wrapper.parameters() if w.requires_grad]
            reduced = sum(weight.numel() for weight in weights)
        self.log("wrapper", name=type(wrapper).__name__, grad=grad, reduced=reduced)
        return original(wrapper, *args, **kwargs)

    def ddp_init(self, original, ddp, *args, **options):
        """Around the constructor of DDP."""
        original(ddp, *args, **options)
        self.log("ddp")

    def loader_init(self, original, loader, *args, **options):
        """Around the constructor of a DataLoader: without workers, which cost time."""
        given = signature(original).bind(loader, *args, **options).arguments
        dataset = given["dataset"]
        is_stream = isinstance(dataset, torch.utils.data.IterableDataset)
        has_length = hasattr(dataset, "__len__") and not is_stream
        self.log("loader", is_stream=is_stream, size=len(dataset) if has_length else 0)
        for name in WORKERS:
            given.pop(name, None)
        original(**given)

    def audit(self, event, arguments):
        """Python's audit hook: files that are opened for writing, or renamed."""
        if event == "open" and isinstance(arguments[0], str):
            if set(arguments[1] or "") & set("wax+"):
                self.log("write", path=arguments[0])
        elif event == "os.rename":
            self.log("write", path=str(arguments[1]))

    def save(self, original, obj, f, *args, **options):
        """Around torch.save, which opens its file in C++."""
        if isinstance(f, str | Path):
            self.log("write", path=str(f))
        return original(obj, f, *args, **options)

    def hash(self, original, value):
        """Around hash: that of a text differs in each process that Python starts.

        The ranks of all runs are forked from one process, and so would have the same.
        """
        is_text = isinstance(value, str | bytes)
        return original((self.salt, value) if is_text else value)

    def backward(self, original, *args, **options):
        """Around Tensor.backward: with DDP it is a collective."""
        self.log("collective_call", name="backward", line=self.line())
        return original(*args, **options)

    def collective(self, original, *args, **options):
        """Around a collective of torch.distributed."""
        name = original.__name__
        self.log("collective_call", name=name, line=self.line())
        result = original(*args, **options)
        given = signature(original).bind(*args, **options).arguments
        if isinstance(result, torch.distributed.Work):
            # the result is kept, or another may get its id
            self.pending[id(result)] = name, given, result
        else:
            self.collective_ends(name, given)
        return result

    def wait(self, original, work, *args, **options):
        """Around Work.wait: an asynchronous collective is over."""
        result = original(work, *args, **options)
        if id(work) in self.pending:
            name, given, _ = self.pending.pop(id(work))
            self.collective_ends(name, given)
        return result

    def collective_ends(self, name, given):
        """When this rank is through with a collective, given its arguments by name."""
        self.log("collective", name=name)
        receivers = given.get("dst"), given.get("group_dst")
        if name == "reduce" and self.rank not in receivers:
            given["tensor"].detach().fill_(-1)  # undefined: Gloo leaves partial sums
            self.log("undefined")

    def install(self):
        """Put the methods above in place."""
        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(self.step)
        sys.addaudithook(self.audit)
        replace("builtins:hash", self.hash)
        replace("torch.nn:Module.__call__", self.module_call)
        replace("torch.utils.data:DataLoader.__init__", self.loader_init)
        replace("torch:save", self.save)
        replace("torch:Tensor.backward", self.backward)
        ddp = "torch.nn.parallel:DistributedDataParallel"
        replace(f"{ddp}.__init__", self.ddp_init)
        replace(f"{ddp}.forward", self.wrapper_forward)
        replace("torch.nn.parallel:DataParallel.forward", self.wrapper_forward)
        replace("torch.distributed:Work.wait", self.wait)
        for name in COLLECTIVES:
            replace(f"torch.distributed:{name}", self.collective)
