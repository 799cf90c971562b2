"""What a rank writes down while the lab watches it: one event per line, as JSON.

`tools.lab.run_record` reads the events. Nothing in here knows an exercise, or MNIST:
`tools.lab.image_recorder` does.
"""

import os
import sys
from inspect import signature
from pathlib import Path

import torch

from onecurve import recorder
from onecurve.events import Log, digest, local_part
from onecurve.replace import replace

WORKERS = ["num_workers", "prefetch_factor", "persistent_workers", "timeout"]
WORKERS += ["multiprocessing_context"]
FLOATS = {torch.float32, torch.float64}
array = torch._C.TensorBase.numpy  # fake GPUs refuse Tensor.numpy


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


class Recorder(recorder.Recorder):
    """Writes down what this process does, in the file folder/rankN.

    `path` is the script's. Nothing that the script computes is changed by it, but for
    `with_dtype_of_weight`, data loaders' workers and what `reduce` leaves undefined.
    """

    def __init__(self, rank, folder, path):
        super().__init__(Log(folder / f"rank{rank}", [path]))
        self.rank = rank
        self.salt = os.urandom(8)  # of this process
        self.pending = {}  # collectives that nobody has waited for

    def line(self):
        """Return the number of the line of the script that is executed, or None."""
        frame = self.log.frame()
        return frame and frame.f_lineno

    def before_step(self, optimizer, args, kwargs):
        """Before a step of an optimizer."""
        self.log.write("before_step", state=state_of(optimizer))

    def after_step(self, optimizer, args, kwargs):
        """After a step of an optimizer."""
        weights = self.parameters(optimizer)
        self.log.write(
            "step",
            digest={name: digest(weight) for name, weight in weights.items()},
            squares=sum(squares(weight.grad) for weight in weights.values()),
            lr=float(optimizer.param_groups[0]["lr"]),
            state=state_of(optimizer),
            weights=sum(local_part(weight).numel() for weight in weights.values()),
        )

    def module_call(self, original, module, *args, **kwargs):
        """Around a call of a module."""
        args = with_dtype_of_weight(module, args)
        return super().module_call(original, module, *args, **kwargs)

    def network_call(self, original, network, *args, **kwargs):
        """Around a call of the network: writes down a pass.

        One in a backward pass is activation checkpointing's, and uses no new images.
        """
        weights = {}
        for name, weight in network.named_parameters():
            weights[name.removeprefix("module.")] = weight  # with DDP and without
        facts = self.inputs([*args, *kwargs.values()])
        if weights or any(facts.values()):
            digests = None
            if torch.is_grad_enabled():
                digests = {name: digest(weight) for name, weight in weights.items()}
                self.learn_names(network)
            grad = torch.is_grad_enabled()
            kind = "recomputed" if self.in_backward else "pass"
            self.log.write(kind, grad=grad, digest=digests, **facts)
        return original(network, *args, **kwargs)

    def inputs(self, values):
        """Return the facts to write down of a network's arguments, as a dict."""
        return {}

    def loader_init(self, original, loader, *args, **options):
        """Around the constructor of a DataLoader: without workers, which cost time."""
        given = signature(original).bind(loader, *args, **options).arguments
        dataset = given["dataset"]
        is_stream = isinstance(dataset, torch.utils.data.IterableDataset)
        has_length = hasattr(dataset, "__len__") and not is_stream
        self.log.write(
            "loader", is_stream=is_stream, size=len(dataset) if has_length else 0
        )
        for name in WORKERS:
            given.pop(name, None)
        original(**given)

    def audit(self, event, arguments):
        """Python's audit hook: files that are opened for writing, or renamed."""
        if event == "open" and isinstance(arguments[0], str):
            if set(arguments[1] or "") & set("wax+"):
                self.log.write("write", path=arguments[0])
        elif event == "os.rename":
            self.log.write("write", path=str(arguments[1]))

    def save(self, original, obj, f, *args, **options):
        """Around torch.save, which opens its file in C++."""
        if isinstance(f, str | Path):
            self.log.write("write", path=str(f))
        return original(obj, f, *args, **options)

    def hash(self, original, value):
        """Around hash: that of a text differs in each process that Python starts.

        The ranks of all runs are forked from one process, and so would have the same.
        """
        is_text = isinstance(value, str | bytes)
        return original((self.salt, value) if is_text else value)

    def collective_ends(self, name, given, result):
        """When a collective returns: an asynchronous one is not over."""
        if isinstance(result, torch.distributed.Work):
            # the result is kept, or another may get its id
            self.pending[id(result)] = name, given, result
        else:
            self.collective_is_over(name, given)

    def wait(self, original, work, *args, **options):
        """Around the ways to wait for an asynchronous collective: it is over.

        To take its future, or to ask until it is completed, is to wait as well.
        """
        result = original(work, *args, **options)
        if result and id(work) in self.pending:
            name, given, _ = self.pending.pop(id(work))
            self.collective_is_over(name, given)
        return result

    def collective_is_over(self, name, given):
        """When this rank is through with a collective, given its arguments by name."""
        self.log.write("collective", name=name)
        receivers = given.get("dst"), given.get("group_dst")
        if name == "reduce" and self.rank not in receivers:
            given["tensor"].detach().fill_(-1)  # undefined: Gloo leaves partial sums
            self.log.write("undefined")

    def install(self):
        """Put the methods above in place."""
        super().install()
        sys.addaudithook(self.audit)
        replace("builtins:hash", self.hash)
        replace("torch.utils.data:DataLoader.__init__", self.loader_init)
        replace("torch:save", self.save)
        replace("torch.nn.parallel:DataParallel.forward", self.wrapper_forward)
        for name in "wait", "get_future", "is_completed":
            replace(f"torch.distributed:Work.{name}", self.wait)
