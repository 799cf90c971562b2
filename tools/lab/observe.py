"""What the exercises' checks see of a run: `record` in each rank, `Seen` afterwards.

A rank writes an event a line, as JSON, at once, so that a run that hangs has told what
it did.
"""

import hashlib
import json
import re
import sys
import types
from pathlib import Path

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from tools.lab.patches import COLLECTIVES, replace

array = torch._C.TensorBase.numpy  # a stand-in refuses it on a GPU


def inked(images):
    """Return which pixels of each image have ink, as bytes.

    An image is known by that, whatever data set it comes through, and however scaled.
    """
    with torch._C.DisableTorchFunction():  # a stand-in does not notice
        pixels = images.reshape(-1, 28 * 28)
        return [array(row).tobytes() for row in pixels > pixels.min()]


def here(tensor):
    """Return what this rank has of a tensor: all, its part of a DTensor, or nothing."""
    tensor = tensor.detach()
    tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # DTensor
    return torch.empty(0) if tensor.is_meta else tensor


def digest(weights):
    """Return a short digest of tensors: equal tensors have equal ones."""
    with torch._C.DisableTorchFunction():  # a stand-in does not notice
        data = b"".join(array(here(weight)).tobytes() for weight in weights)
    return hashlib.sha256(data).hexdigest()[:12]


def record(rank, folder, stand_in=None, reductions=False):
    """Have this process write what it does to folder/rankN; MNIST is in folder/data.

    `stand_in` is a function of tools.lab.standin, called with the function that writes
    an event; `reductions` has DDP's own reductions written too.
    """
    from torchvision import datasets  # here: only a rank has it at once

    events = open(folder / f"rank{rank}", "w", buffering=1)  # noqa: SIM115

    def note(kind, **facts):
        events.write(json.dumps({"kind": kind, **facts}) + "\n")

    known = {}  # what `inked` says of an image -> whether it is for training, its index
    for train in True, False:
        images = datasets.MNIST(folder / "data", train).data
        known |= {key: (train, index) for index, key in enumerate(inked(images))}

    def taken(batch):
        note("fetch", images=[known[k] for k in inked(batch[0]) if k in known])
        return batch

    def loop(original, loader):
        note("loop")
        return map(taken, original(loader))

    def stepped(optimizer, args, kwargs):
        weights = [w for group in optimizer.param_groups for w in group["params"]]
        state = [value for kept in optimizer.state.values() for value in kept.values()]
        held = sum(here(v).numel() for v in state if isinstance(v, torch.Tensor))
        rate = optimizer.param_groups[0]["lr"]
        note("step", digest=digest(weights), lr=rate, state=held)

    def called(module, inputs):
        own = type(module).__module__ == "__main__"  # the script's
        if module.training and own:
            note("weights", digest=digest(module.parameters()))

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
        result = original(*args, **options)
        note("collective", name=original.__name__)
        return result

    register_optimizer_step_post_hook(stepped)
    register_module_forward_pre_hook(called)
    sys.addaudithook(audited)
    replace("torch.utils.data:DataLoader.__iter__", loop)
    replace("torch:save", saved)
    replace("torch.nn.parallel:DistributedDataParallel.__init__", wrapped)
    for name in COLLECTIVES:
        replace(f"torch.distributed:{name}", collective)
    if stand_in:
        stand_in(note)


class Seen(types.SimpleNamespace):
    """What came of a run.

    `events`: a list of dicts for each rank; `rows`: metrics.csv as (loss, correct,
    total) an epoch; `weights`: model.pth, or None where none can be read; `status`,
    `stdout`, `stderr`; `places`: where ranks hang ({rank: text of the line}); `out`:
    where the run was told to write; `path` and `text`: of the script.
    """

    def of(self, kind, rank=0):
        """Return the events of a kind on a rank, in order."""
        return [event for event in self.events[rank] if event["kind"] == kind]

    def epochs(self, rank=0, train=True):
        """Return the batches of indices that a rank took: a list for each epoch."""
        found, batches = [], []
        for event in self.events[rank]:
            if event["kind"] == "loop":
                batches = []
            elif event["kind"] == "fetch":
                batch = [index for part, index in event["images"] if part == train]
                if batch and not batches:
                    found.append(batches)
                if batch:
                    batches.append(batch)
        return found

    def writers(self):
        """Return which ranks wrote a file below `out`: {name: sorted list of ranks}."""
        found = {}
        for rank in range(len(self.events)):
            for event in self.of("write", rank):
                path = Path(event["path"])
                if path.is_absolute() and path.is_relative_to(self.out):
                    found.setdefault(path.name, set()).add(rank)
        return {name: sorted(ranks) for name, ranks in sorted(found.items())}

    def error(self):
        """Return the first error that a rank printed, and the script's line, or ''."""
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        error = re.compile(r"[\w.]*(Error|Exception)\b|\w+: ")
        errors = list(filter(error.match, lines))
        text = (errors or lines or [""])[0 if errors else -1].strip()
        text = re.sub(r"\[[^\]]*/[^\]]*\] *|what\(\): *", "", text)  # where in PyTorch
        found = re.findall(rf'File "{re.escape(self.path)}", line (\d+)', self.stderr)
        if not found:
            return text
        line = self.text.splitlines()[int(found[-1]) - 1].strip()
        return f"{text}\n  at line {found[-1]}: {line}"
