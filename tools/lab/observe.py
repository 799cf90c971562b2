"""What the exercises' checks see of a run: `record` in each rank, `Seen` afterwards.

A rank writes an event a line, as JSON, at once, so that a run that hangs has told what
it did.
"""

import hashlib
import json
import re
import resource
import signal
import sys
import types
from inspect import signature
from pathlib import Path
from time import monotonic  # not the module's, which a stand-in replaces

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from tools.lab.patches import COLLECTIVES, replace

array = torch._C.TensorBase.numpy  # a stand-in refuses it on a GPU
PIXELS = 28 * 28
LARGEST = 2**28  # bytes of a file: a script that prints for ever must not fill the disk
GONE = r"(?i)Connection (closed|reset)|preamble|Broken pipe|Socket|timed? ?out|peer"


def inked(images):
    """Return which pixels of each image differ from its corner, as bytes.

    An image is known by that, whatever data set it comes through, and however scaled.
    """
    with torch._C.DisableTorchFunction():  # a stand-in does not notice
        pixels = here(images).reshape(-1, PIXELS)
        return [array(row).tobytes() for row in pixels != pixels[:, :1]]


def here(tensor):
    """Return what this rank has of a tensor: all, its part of a DTensor, or nothing."""
    tensor = tensor.detach()
    tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # DTensor
    return torch.empty(0) if tensor.is_meta else tensor


def digest(weights):
    """Return a short digest of tensors: equal tensors have equal ones."""
    with torch._C.DisableTorchFunction():  # a stand-in does not notice
        # copies: FSDP frees the storage of its own, which NumPy would hold on to
        parts = (here(w).clone().flatten().view(torch.uint8) for w in weights)
        data = b"".join(array(part).tobytes() for part in parts)
    return hashlib.sha256(data).hexdigest()[:12]


def images_in(values):
    """Return the tensors among arguments that have images' shape, one row an image."""
    return [
        value
        for value in values
        if isinstance(value, torch.Tensor)
        and value.dim() > 1
        and len(value) * PIXELS == value.numel() > 0
    ]


def record(rank, folder, path, stand_in=None, reductions=False):
    """Have this process write what it does to folder/rankN; MNIST is in folder/data.

    `path` is the script's. `stand_in` is a function of tools.lab.standin, called with
    the function that writes an event; `reductions` has DDP's own reductions written too.
    """
    from torchvision import datasets  # here: only a rank has it at once

    events = open(folder / f"rank{rank}", "w", buffering=1)  # noqa: SIM115
    depth, pending = [], {}  # of calls of modules; collectives that nobody waited for

    def note(kind, **facts):  # `time` is the same clock in all ranks, in seconds
        events.write(json.dumps({"kind": kind, "time": monotonic(), **facts}) + "\n")

    known = {}  # what `inked` says of an image -> whether it is for training, its index
    for train in True, False:
        images = datasets.MNIST(folder / "data", train).data
        known |= {key: (train, index) for index, key in enumerate(inked(images))}

    def line():
        frame = sys._getframe(2)
        while frame and frame.f_code.co_filename != path:
            frame = frame.f_back
        return frame and frame.f_lineno

    def stepped(optimizer, args, kwargs):
        weights = [w for group in optimizer.param_groups for w in group["params"]]
        state = [
            value
            for kept in optimizer.state.values()
            for value in (kept or {}).values()
        ]  # None: of another rank, in ZeroRedundancyOptimizer
        held = sum(here(v).numel() for v in state if isinstance(v, torch.Tensor))
        rate, size = (
            optimizer.param_groups[0]["lr"],
            sum(here(w).numel() for w in weights),
        )
        note("step", digest=digest(weights), lr=float(rate), state=held, weights=size)

    def passed(module, values):
        keys = [key for value in images_in(values) for key in inked(value)]
        weights = list(module.parameters())
        if weights or keys:
            grad = torch.is_grad_enabled()
            found = [known[key] for key in keys if key in known]
            told = digest(weights) if grad else None
            note("pass", images=found, grad=grad, digest=told)

    def called(original, module, *args, **kwargs):
        if not depth:  # the outermost module: what reaches the network
            passed(module, [*args, *kwargs.values()])
        own = module._parameters.get("weight")
        if own is not None and args and isinstance(args[0], torch.Tensor):
            pair = {args[0].dtype, own.dtype}
            if pair == {torch.float32, torch.float64}:  # .float(); the lab has doubles
                args = args[0].to(own.dtype), *args[1:]
        depth.append(module)
        try:
            return original(module, *args, **kwargs)
        finally:
            depth.pop()

    def through(original, wrapper, *args, **kwargs):
        grad = torch.is_grad_enabled()
        note("wrapper", name=type(wrapper).__name__, grad=grad)
        return original(wrapper, *args, **kwargs)

    def alone(original, loader, *args, **options):
        given = signature(original).bind(loader, *args, **options).arguments
        for name in "num_workers", "prefetch_factor", "persistent_workers", "timeout":
            given.pop(name, None)
        given.pop("multiprocessing_context", None)
        original(**given)

    def audited(event, arguments):
        if event == "open" and isinstance(arguments[0], str):
            if set(arguments[1] or "") & set("wax+"):
                note("write", path=arguments[0])
        elif event == "os.rename":
            note("write", path=str(arguments[1]))

    def saved(original, obj, f, *args, **options):
        if isinstance(f, str | Path):
            note("write", path=str(f))
        return original(obj, f, *args, **options)

    def reduced(state, bucket):
        note("reduction", numbers=bucket.buffer().numel())
        return allreduce_hook(state, bucket)

    def wrapped(original, ddp, *args, **options):
        original(ddp, *args, **options)
        note("ddp")
        if reductions:
            ddp.register_comm_hook(None, reduced)

    def collective(original, *args, **options):
        name = original.__name__
        note("meet", name=name, line=line())
        result = original(*args, **options)
        given = signature(original).bind(*args, **options).arguments
        if isinstance(result, torch.distributed.Work):
            pending[id(result)] = name, given, result  # kept, or another has its id
        else:
            over(name, given)
        return result

    def over(name, given):
        note("collective", name=name)
        if name == "reduce" and rank not in (given.get("dst"), given.get("group_dst")):
            given["tensor"].detach().fill_(-1)  # undefined: Gloo leaves partial sums

    def waited(original, work, *args, **options):
        result = original(work, *args, **options)
        if id(work) in pending:
            over(*pending.pop(id(work))[:2])
        return result

    def backward(original, *args, **options):
        note("meet", name="backward", line=line())
        return original(*args, **options)

    register_optimizer_step_post_hook(stepped)
    sys.addaudithook(audited)
    replace("torch.nn:Module.__call__", called)
    replace("torch.utils.data:DataLoader.__init__", alone)
    replace("torch:save", saved)
    replace("torch:Tensor.backward", backward)
    replace("torch.nn.parallel:DistributedDataParallel.__init__", wrapped)
    replace("torch.nn.parallel:DistributedDataParallel.forward", through)
    replace("torch.nn.parallel:DataParallel.forward", through)
    replace("torch.distributed:Work.wait", waited)
    for name in COLLECTIVES:
        replace(f"torch.distributed:{name}", collective)
    if stand_in:
        stand_in(note)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))


class Seen(types.SimpleNamespace):
    """What came of a run.

    `events`: a list of dicts for each rank; `rows`: metrics.csv as (loss, correct,
    total) an epoch; `weights`: model.pth, or None; `needs_gpu`: are they saved as on one?
    `unread`: why one of the two cannot be read, {name: text}; `status`: 0 where all
    ended well; `stdout`, `stderr`; of each rank `statuses`, `errors` and `places`, as
    tools.run.ranks.run says; `hangs`: did it take too long?; `out`: where the run was
    told to write; `path` and `text`: of the script; `count`: the epochs to train now.
    """

    def of(self, kind, rank=0):
        """Return the events of a kind on a rank, in order."""
        return [event for event in self.events[rank] if event["kind"] == kind]

    def passes(self, rank=0, train=True):
        """Return the indices of the images that reached the network: a list a pass.

        Of training passes, the training images: those with gradients; else of all, the
        test images.
        """
        passes = [
            event for event in self.of("pass", rank) if event["grad"] or not train
        ]
        found = (
            [i for part, i in event["images"] if part == train] for event in passes
        )
        return [images for images in found if images]

    def epochs(self, rank=0, train=True):
        """Return `passes` as a list for each epoch: each has as many passes.

        It is empty where a rank got none, and of other length where they do not divide.
        """
        passes = self.passes(rank, train)
        size = len(passes) // self.count or 1
        return [passes[n : n + size] for n in range(0, len(passes), size)]

    def rates(self, rank=0):
        """Return the learning rate at each step of an optimizer."""
        return [event["lr"] for event in self.of("step", rank)]

    def wrapped(self, rank=0):
        """Return the names of the wrappers that training passes went through."""
        return {event["name"] for event in self.of("wrapper", rank) if event["grad"]}

    def writers(self):
        """Return which ranks wrote a file below `out`: {name: sorted list of ranks}."""
        found = {}
        for rank in range(len(self.events)):
            for event in self.of("write", rank):
                path = Path(event["path"])
                if path.is_absolute() and path.is_relative_to(self.out):
                    found.setdefault(path.name, set()).add(rank)
        return {name: sorted(ranks) for name, ranks in sorted(found.items())}

    def at(self, line):
        """Return a line of the script in words, given its number or None."""
        lines = self.text.splitlines()
        if not line or line > len(lines):
            return "no line of the script: before the first or after the last"
        return f"line {line}: {lines[line - 1].strip()}"

    def whereabouts(self):
        """Return a line for each rank: where it was when the run was ended."""
        told = []
        for rank, status in enumerate(self.statuses):
            if rank in self.errors:
                _, line = self.errors[rank]
                told.append(f"rank {rank} failed at {self.at(line)}")
            elif status is None:
                told.append(f"rank {rank} is at {self.at(self.places.get(rank))}")
            else:
                told.append(f"rank {rank} {ending(status)}")
        return "".join(f"\n  {text}" for text in told) + self.parting()

    def parting(self):
        """Return in words where ranks first called different collectives, or ''.

        With DDP, the backward pass is one.
        """
        ddp = any(self.of("ddp", rank) for rank in range(len(self.events)))
        calls = [
            [e for e in self.of("meet", rank) if ddp or e["name"] != "backward"]
            for rank in range(len(self.events))
        ]
        for rank, others in enumerate(calls[1:], start=1):
            ours = calls[0]
            for n in range(max(len(ours), len(others))):
                pair = [c[n] if n < len(c) else None for c in (ours, others)]
                names = [call and call["name"] for call in pair]
                if names[0] == names[1]:
                    continue
                told = [
                    f"{call['name']} at line {call['line']}" if call else "no more"
                    for call in pair
                ]
                return (
                    f"\nCall {n + 1} in which ranks meet is {told[0]} for rank 0, "
                    f"{told[1]} for rank {rank}."
                )
        return ""

    def error(self):
        """Return in words why the run failed: an error and its line, or a status.

        What is but another rank's end is told by where the ranks were.
        """
        own = {
            rank: error
            for rank, error in self.errors.items()
            if not (error[0].startswith("RuntimeError") and re.search(GONE, error[0]))
            and not error[0].startswith("torch.distributed.Dist")
        }
        if own:
            rank, (text, line) = min(own.items())
            text = re.sub(r"\[[^\]]*/[^\]]*\] *|what\(\): *", "", text)  # in PyTorch
            text = (text.splitlines() or [""])[0][:300]
            if not text:
                text = f"rank {rank} {ending(self.statuses[rank])}"
            return f"{text}\n  at {self.at(line)}" if line else text
        bad = [n for n, status in enumerate(self.statuses) if status]
        bad = [n for n in bad if n not in self.errors]
        if bad:
            return f"rank {bad[0]} {ending(self.statuses[bad[0]])}{self.whereabouts()}"
        return f"the ranks did not meet.{self.whereabouts()}"


def ending(status):
    """Return an exit status in words; None is one that was not waited for."""
    if not status:
        return "has come to its end"
    if status > 0:
        return f"ended with exit status {status}"
    why = ", as the system does when memory runs out" if status == -9 else ""
    return f"was killed by {signal.Signals(-status).name}{why}"
