"""What a rank writes down while the lab runs it: one event per line, as JSON.

Each line is written at once, so that a run that hangs has told what it did.
`tools.lab.run_record` reads the events.
"""

import hashlib
import json
import resource
import sys
from inspect import signature
from pathlib import Path
from time import monotonic  # not the module's, which the fake GPUs replace

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from tools.lab.patches import COLLECTIVES, replace

array = torch._C.TensorBase.numpy  # the fake GPUs refuse Tensor.numpy
PIXELS = 28 * 28
CLASSES = 10
LARGEST = 2**28  # bytes of a file: a script that prints for ever must not fill the disk
WORKERS = ["num_workers", "prefetch_factor", "persistent_workers", "timeout"]
WORKERS += ["multiprocessing_context"]
FLOATS = {torch.float32, torch.float64}


def image_fingerprints(images):
    """Return which pixels of each image differ from its corner, as bytes.

    They identify an image, whatever data set has it, and however it is scaled.
    """
    with torch._C.DisableTorchFunction():  # unseen by the fake GPUs
        pixels = local_part(images).reshape(-1, PIXELS)
        differ = pixels != pixels[:, :1]
        return [array(row).tobytes() for row in differ]


def local_part(tensor):
    """Return what this rank has of a tensor: all, a shard of a DTensor, or nothing."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    return torch.empty(0) if tensor.is_meta else tensor


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


def images_in(values):
    """Return the tensors among arguments that have images' shape, one row per image."""
    batches = [v for v in values if isinstance(v, torch.Tensor) and v.dim() > 1]
    return [batch for batch in batches if len(batch) * PIXELS == batch.numel() > 0]


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
    """Writes down what this process does: folder/rankN, with MNIST in folder/data."""

    def __init__(self, rank, folder, path, reductions):
        self.rank = rank
        self.path = path
        self.reductions = reductions
        self.events = open(folder / f"rank{rank}", "w", buffering=1)  # noqa: SIM115
        self.depth = 0  # of calls of modules
        self.pending = {}  # collectives that nobody has waited for
        self.images = known_images(folder / "data")

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
        self.log(
            "step",
            digest=[digest(weight) for weight in weights],
            squares=sum(squares(weight.grad) for weight in weights),
            lr=float(optimizer.param_groups[0]["lr"]),
            state=state_of(optimizer),
            weights=sum(local_part(weight).numel() for weight in weights),
        )

    def module_call(self, original, module, *args, **kwargs):
        """Around a call of a module; the outermost one is the network's."""
        if not self.depth:
            self.forward_pass(module, [*args, *kwargs.values()])
        if args and getattr(module, "out_features", None) == CLASSES:
            self.units(args[0])
        self.depth += 1
        try:
            return original(module, *with_dtype_of_weight(module, args), **kwargs)
        finally:
            self.depth -= 1

    def forward_pass(self, module, values):
        """Before a forward pass of the network."""
        fingerprints = []
        for images in images_in(values):
            fingerprints += image_fingerprints(images)
        weights = dict(module.named_parameters())
        if weights or fingerprints:
            digests = None
            if torch.is_grad_enabled():
                digests = {name: digest(weight) for name, weight in weights.items()}
            self.log(
                "pass",
                images=[self.images[f] for f in fingerprints if f in self.images],
                grad=torch.is_grad_enabled(),
                digest=digests,
            )

    def units(self, hidden):
        """Before the layer that makes the scores: which units of each image are 0."""
        with torch._C.DisableTorchFunction():  # unseen by the fake GPUs
            zero = local_part(hidden) == 0
            grad = torch.is_grad_enabled()
            self.log(
                "units",
                grad=grad,
                zeros=int(array(zero).sum()),  # item() would wait for a GPU
                count=zero.numel(),
                digests=[digest(row) for row in zero] if grad else [],
            )

    def wrapper_forward(self, original, wrapper, *args, **kwargs):
        """Around the forward pass of DDP and nn.DataParallel."""
        grad = torch.is_grad_enabled()
        self.log("wrapper", name=type(wrapper).__name__, grad=grad)
        return original(wrapper, *args, **kwargs)

    def ddp_init(self, original, ddp, *args, **options):
        """Around the constructor of DDP."""
        original(ddp, *args, **options)
        self.log("ddp")
        if self.reductions:
            ddp.register_comm_hook(None, self.reduction)

    def reduction(self, state, bucket):
        """In place of DDP's own reduction of a bucket."""
        self.log("reduction", numbers=bucket.buffer().numel())
        return allreduce_hook(state, bucket)

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

    def install(self):
        """Put the methods above in place."""
        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(self.step)
        sys.addaudithook(self.audit)
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


def known_images(root):
    """Return {fingerprint: (is it for training?, its index)} of MNIST in a folder."""
    from torchvision import datasets  # here: only a rank needs it at once

    found = {}
    for train in True, False:
        images = datasets.MNIST(root, train).data
        for index, fingerprint in enumerate(image_fingerprints(images)):
            found[fingerprint] = (train, index)
    return found


def record(rank, folder, path, fake=None, reductions=False):
    """Have this process write what it does to folder/rankN; MNIST is in folder/data.

    `path` is the script's. `fake` is a function of tools.lab.fake_cuda, called with the
    function that writes an event; `reductions` has DDP's own reductions written too.
    """
    recorder = Recorder(rank, folder, path, reductions)
    recorder.install()
    if fake:
        fake(recorder.log)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))
