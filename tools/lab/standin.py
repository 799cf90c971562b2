"""GPUs that are not there: `gpus` has this process believe in some.

Tensors are where the script puts them, compute right, on the CPU, and refuse what CUDA
and NCCL refuse. The place is kept on the storage, so views and a parameter's new data
have it too; every operation is seen, those of the backward pass, of optimizers and of
DDP too. What is not stood in for, such as streams and kernels of one's own, ends in
PyTorch's own error.
"""

from functools import partial
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tools.lab.patches import replace

CALL = 0.05  # ms that a call takes, whatever it asks for
LINEAR, BACKWARD = 3.0, 6.0  # ms of the device
SAME = (
    "Expected all tensors to be on the same device, but found at least two devices, "
    "{0} and {1}!"
)
HERE = SimpleNamespace(count=0, current=0, nccl=False)  # of this process


class Clock:
    """A clock that only the work moves: a call costs little, waiting costs the rest.

    `now` and `free`, when the queue will be empty, are in ms.
    """

    def __init__(self):
        self.now = self.free = 0.0

    def queue(self, milliseconds):
        self.now += CALL
        self.free = max(self.now, self.free) + milliseconds

    def wait(self):
        self.now = max(self.now, self.free)


CLOCK = Clock()  # of this process; with two GPUs, both work through one queue


class Event:
    """torch.cuda.Event by that clock."""

    def __init__(self, enable_timing=False, **_):
        self.at = None

    def record(self, *_):
        self.at = max(CLOCK.now, CLOCK.free)

    def synchronize(self):
        CLOCK.now = max(CLOCK.now, self.at)

    def elapsed_time(self, other):
        return other.at - self.at


def place(tensor):
    """Return the device of a tensor, a text, or None where it was never told.

    That is what C++ makes for itself, such as DDP's buckets: it takes the device of what
    is first put there.
    """
    with torch._C.DisableTorchFunction():
        return getattr(tensor.untyped_storage(), "place", None)


def put(tensor, where):
    """Have a tensor's storage be on a device."""
    with torch._C.DisableTorchFunction():
        tensor.untyped_storage().place = where


def named(device):
    """Return a device, given as a text, number or torch.device, as `cuda:0` or `cpu`."""
    name = f"cuda:{device}" if isinstance(device, int) else str(device)
    name = f"cuda:{HERE.current}" if name == "cuda" else name
    if name.startswith("cuda:") and int(name[5:]) >= HERE.count:
        raise RuntimeError("CUDA error: invalid device ordinal")
    return name


def tensors(values):
    """Return the tensors in arguments or results, however nested."""
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


class Move(torch.autograd.Function):
    """A copy on another device, whose gradient goes back to where it came from."""

    @staticmethod
    def forward(ctx, tensor, where):
        ctx.origin = place(tensor) or "cpu"
        copy = tensor.clone()
        put(copy, where)
        return copy

    @staticmethod
    def backward(ctx, gradient):
        return Move.apply(gradient, ctx.origin), None


def move(tensor, where):
    """Return the tensor on another device: itself where it is there."""
    if where == place(tensor):
        return tensor
    if where == "cpu":
        CLOCK.wait()
    return Move.apply(tensor, where)


class Operations(TorchDispatchMode):
    """Refuses operations as CUDA and NCCL do, and says where their results are."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name, given = func._schema.name, tensors((args, kwargs))
        if name.startswith("aten::_foreach"):  # the n-th of each list meet
            lists = [arg for arg in args if isinstance(arg, list | tuple)]
            groups = [tensors(group) for group in zip(*lists, strict=False)]
        else:
            groups = [given]
        if name.startswith("c10d::"):
            self.collective(name, given)
        elif name not in ("aten::copy_", "aten::set_", "aten::_has_same_storage_numel"):
            for group in groups:
                self.meet(func, group)
        if name == "aten::_local_scalar_dense" and place(given[0]) != "cpu":
            CLOCK.wait()
        with torch._C.DisableTorchFunction():  # this is no call of the script
            result = func(*args, **(kwargs or {}))
        places = [place(t) for t in given]
        where = next((p for p in places if p not in (None, "cpu")), None)
        where = where or next(filter(None, places), None)
        made = tensors(result)
        if len(groups) > 1 and len(made) == len(groups):
            wheres = [place(group[0]) for group in groups]
        else:
            wheres = [where] * len(made)
        for tensor, here in zip(made, wheres, strict=True):
            if place(tensor) is None and here:
                put(tensor, here)
        return result

    def meet(self, func, given):
        """Raise RuntimeError where CUDA would: only numbers of the CPU may mix."""
        if func._schema.name in ("aten::index", "aten::index_put_"):
            first, *others = given  # an index may be on the CPU, what is put there not
            values = others[-1:] if func._schema.is_mutable else []
            indices = others[: len(others) - len(values)]
            if any(place(t) not in ("cpu", None, place(first)) for t in indices):
                raise RuntimeError(
                    "indices should be either on cpu or on the same device as the "
                    f"indexed tensor ({place(first)})"
                )
            given = [first, *values]
        known = [(place(t), t.dim()) for t in given if place(t)]
        found = {where for where, dim in known if dim or where != "cpu"}
        if func._schema.is_mutable and known:
            found.add(known[0][0])
        if len(found) > 1:
            raise RuntimeError(SAME.format(*sorted(found, reverse=True)))

    def collective(self, name, given):
        """Raise RuntimeError where NCCL would: for the CPU, for a GPU of two ranks."""
        places = {place(tensor) for tensor in given} - {None}
        if not HERE.nccl or not places:
            return
        if "cpu" in places:
            raise RuntimeError("No backend type associated with device type cpu")
        store, rank = dist.distributed_c10d._get_default_store(), dist.get_rank()
        store.set(f"gpu of {rank}", min(places))
        others = [store.get(f"gpu of {n}") for n in range(dist.get_world_size())]
        for other, where in enumerate(others):
            if other != rank and where.decode() == min(places):
                raise RuntimeError(
                    f"ncclInvalidUsage: Duplicate GPU detected : rank {rank} and rank "
                    f"{other} both on CUDA device {where.decode()}"
                )


class Calls(TorchFunctionMode):
    """Makes tensors where `device=` says, and tells what layers do."""

    def __init__(self, note):
        super().__init__()
        self.note = note

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        where = kwargs.pop("device", None)
        if (
            func == torch.Tensor.grad.__set__
            and len(set(map(place, tensors(args)))) > 1
        ):
            raise RuntimeError("assigned grad has data located on a different device")
        result = func(*args, **kwargs)
        for made in tensors(result):
            if where is not None:
                put(made, named(where))
            elif place(made) is None:
                put(made, "cpu")
        if func is nn.functional.linear:
            told = {"device": place(result), "images": len(result)}
            self.note("forward", **told)
            if result.requires_grad:
                result.register_hook(lambda _: self.note("backward", **told))
            CLOCK.queue(LINEAR)
        if func in (torch.Tensor.backward, torch.autograd.backward):
            CLOCK.queue(BACKWARD)
        return result


def to(original, tensor, *args, **kwargs):
    """Stand in for Tensor.to(): to another place without CUDA."""
    where, dtypes = None, []
    for value in [*args, *kwargs.values()]:
        if isinstance(value, torch.dtype):
            dtypes = [value]
        elif isinstance(value, torch.Tensor):
            where, dtypes = value.device, [value.dtype]
        elif isinstance(value, str | int | torch.device) and value not in (True, False):
            where = value
    if dtypes:
        tensor = original(tensor, *dtypes)
    if str(where) == "meta":
        return original(tensor, where)
    return tensor if where is None else move(tensor, named(where))


def numpy(original, tensor, **options):
    """Refuse what Tensor.numpy() refuses of a tensor on a GPU."""
    if tensor.is_cuda:
        raise TypeError(
            f"can't convert {tensor.device} device type tensor to numpy. Use "
            "Tensor.cpu() to copy the tensor to host memory first."
        )
    return original(tensor, **options)


def tolist(original, tensor):
    return original(tensor.cpu())


def scatter(_, tensor, devices, sizes, dim, streams):
    """Stand in for torch._C._scatter: the parts of a tensor, one on each device."""
    parts = tensor.split(sizes, dim) if sizes else tensor.chunk(len(devices), dim)
    return [move(part, named(d)) for part, d in zip(parts, devices, strict=False)]


def gather(_, parts, dim, device):
    """Stand in for torch._C._gather: the parts joined on a device."""
    return torch.cat([move(part, named(device)) for part in parts], dim)


def broadcast(_, originals, devices, size):
    """Stand in for torch._C._broadcast_coalesced: copies on each device."""
    return [[Move.apply(t, named(device)) for t in originals] for device in devices]


def apply(_, wrapper, replicas, inputs, kwargs):
    """Stand in for the threads of nn.DataParallel, in which no mode is at work."""
    calls = zip(replicas, inputs, kwargs, strict=True)
    return [replica(*args, **options) for replica, args, options in calls]


def init_process_group(original, backend=None, **options):
    """Stand in for NCCL by gloo; HERE.nccl has Operations refuse what NCCL does."""
    HERE.nccl = backend == "nccl"
    original("gloo", **options)


def set_device(_, device):
    HERE.current = int(named(device).removeprefix("cuda:"))


def gpus(count, note, usable=True):
    """Have torch believe in `count` GPUs that work through a queue, in their own time.

    What a script measures does not depend on the machine: a call takes CALL ms, a layer
    LINEAR, the backward pass BACKWARD. `note` is called with what layers do. GPUs that
    are not `usable` are seen by NVML alone: the driver is too old for this PyTorch.
    """
    replace("torch.cuda:is_available", lambda _: usable and count > 0)
    replace("torch.cuda:device_count", lambda _: count)
    if not (usable and count):
        return
    HERE.count = count
    card = SimpleNamespace(
        total_memory=2**34, multi_processor_count=80, major=8, minor=0
    )
    replace("torch.cuda:get_device_properties", lambda _, device: card)
    replace("torch.cuda:current_device", lambda _: HERE.current)
    replace("torch.cuda:set_device", set_device)
    replace("torch.cuda:synchronize", lambda _, device=None: CLOCK.wait())
    replace("torch.cuda:Event", Event)
    replace("torch.cuda.nccl:is_available", lambda _, tensors: False)
    for name in "perf_counter", "monotonic", "time":
        replace(f"time:{name}", lambda _: CLOCK.now / 1000)
    device = property(lambda tensor: torch.device(place(tensor) or "cpu"))
    replace("torch:Tensor.device", device)
    replace("torch:Tensor.is_cuda", property(lambda t: t.device.type == "cuda"))
    replace("torch:Tensor.get_device", lambda _, t: t.device.index if t.is_cuda else -1)
    replace("torch:Tensor.to", to)
    replace("torch:Tensor.cpu", lambda _, tensor: move(tensor, "cpu"))
    replace("torch:Tensor.cuda", lambda _, t, where="cuda", **__: move(t, named(where)))
    replace("torch:Tensor.numpy", numpy)
    replace("torch:Tensor.tolist", tolist)
    replace("torch.nn:DataParallel.parallel_apply", apply)
    replace("torch._C:_scatter", scatter)
    replace("torch._C:_gather", gather)
    replace("torch._C:_broadcast_coalesced", broadcast)
    replace("torch.distributed:init_process_group", init_process_group)
    replace(
        "torch.distributed.distributed_c10d:_get_object_coll_device",
        lambda original, group=None: "cuda" if HERE.nccl else original(group),
    )
    torch.serialization.register_package(5, tag, restore)
    Operations().__enter__()
    Calls(note).__enter__()


def tag(storage):
    """Return the device that torch.save writes down for a storage, or None: the CPU."""
    where = getattr(storage, "place", None)
    return where if where != "cpu" else None


def restore(storage, location):
    """Put a storage that torch.load has read on the device written down for it."""
    if location.startswith("cuda"):
        storage.place = named(location)
        return storage


one_gpu, two_gpus = partial(gpus, 1), partial(gpus, 2)
