"""GPUs that are not there: `gpus` has this process believe in some.

Tensors are where the script puts them, compute right, on the CPU, and refuse what CUDA
and NCCL refuse. The place is kept on the storage, so views and a parameter's new data
have it too; every operation is seen, those of the backward pass, of optimizers and of
DDP too. So does the public API of torch.cuda and torch.accelerator: API has what is
answered. What cannot be stood in for, such as graphs and kernels of one's own, ends in
one line that says so. Mixed precision is accepted, and computes as without it.
"""

import datetime
import inspect
import os
from collections import Counter
from functools import partial
from pkgutil import resolve_name
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tools.lab.patches import CLOCKS, install, replace

CALL = 0.05  # ms that a call takes, whatever it asks for
MATMUL = 2.4  # ms of the device; a step of the scripts has five
WAIT = 2.0  # ms that a wait takes besides: the GPU stands still until the next call
WAITS = {
    "_local_scalar_dense",
    "equal",
    "nonzero",
    "masked_select",
}  # they read numbers
SAME = (
    "Expected all tensors to be on the same device, but found at least two devices, "
    "{0} and {1}!"
)
LIMIT = (
    "{}: the lab's fake GPU does not have it. That is the lab's limit, not a "
    "mistake of yours."
)
HERE = SimpleNamespace(  # of this process
    count=0, current=0, nccl=False, default=None, note=None, speed=1.0, now=0.0
)


def current_stream(device=None):
    """Return the current torch.cuda.Stream of a device."""
    return HERE.streams[named("cuda" if device is None else device)]


def default_stream(device=None):
    index = int(named("cuda" if device is None else device)[5:])
    return HERE.queues[index]  # the first that there were


def set_stream(stream):
    HERE.streams[str(stream.device)] = stream


def queue(milliseconds, device):
    """Put work into a queue: the call takes little, whatever it asks for."""
    HERE.now += CALL
    stream = current_stream(device)
    stream.free = max(HERE.now, stream.free) + milliseconds / HERE.speed


def wait(until):
    """Stand still until a time of the clock, in ms; it is moved by work alone."""
    if until > HERE.now:
        HERE.now = until + WAIT
        HERE.note("wait")


def synchronize(device=None):
    """Stand in for torch.cuda.synchronize(): wait for all queues of a device."""
    where = torch.device(named("cuda" if device is None else device))
    wait(max(stream.free for stream in HERE.queues if stream.device == where))


class Stream:
    """torch.cuda.Stream: a queue of a device; `free` is when it will be empty, in ms."""

    def __init__(self, device=None, priority=0):
        self.device = torch.device(named("cuda" if device is None else device))
        self.device_index, self.priority, self.free = self.device.index, priority, 0.0
        HERE.queues.append(self)

    def query(self):
        return self.free <= HERE.now

    def synchronize(self):
        wait(self.free)

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event):
        event.wait(self)

    def wait_stream(self, stream):
        self.free = max(self.free, stream.free)

    def __enter__(self):
        self.within = StreamContext(self)
        self.within.__enter__()
        return self

    def __exit__(self, *_):
        self.within.__exit__()


class StreamContext:
    """torch.cuda.stream()."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream:
            self.before = HERE.current, current_stream(self.stream.device)
            HERE.current = self.stream.device_index
            set_stream(self.stream)

    def __exit__(self, *_):
        if self.stream:
            HERE.current, before = self.before
            set_stream(before)


class Device:
    """torch.cuda.device(): the current device within a block."""

    def __init__(self, device):
        self.device = device

    def __enter__(self):
        self.before = HERE.current
        set_device(None, self.device)

    def __exit__(self, *_):
        HERE.current = self.before


class DeviceOf(Device):
    """torch.cuda.device_of(): that of a tensor, if it is on a GPU."""

    def __init__(self, tensor):
        super().__init__(tensor.get_device())


class Event:
    """torch.cuda.Event: when the work before it was done, by the clock."""

    def __init__(self, enable_timing=False, **_):
        self.timing, self.at = enable_timing, None

    def record(self, stream=None):
        self.at = max(HERE.now, (stream or current_stream()).free)

    def wait(self, stream=None):
        stream = stream or current_stream()
        stream.free = max(stream.free, self.at or 0)

    def query(self):
        return self.at is None or self.at <= HERE.now

    def synchronize(self):
        wait(self.at or 0)

    def elapsed_time(self, end):
        """Return ms. Raises what CUDA does for events that are not there yet."""
        if not (self.timing and end.timing):
            why = "Both events must be created with argument 'enable_timing=True'."
            raise ValueError(why)
        if None in (self.at, end.at):
            why = "Both events must be recorded before calculating elapsed time."
            raise ValueError(why)
        if not (self.query() and end.query()):
            raise RuntimeError("CUDA error: device not ready")
        return end.at - self.at


class Datetime(datetime.datetime):
    """datetime.datetime, whose now() is read from the clock."""

    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(HERE.now / 1000, tz)


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


def move(tensor, where, non_blocking=False):
    """Return the tensor on another device: itself where it is there."""
    origin = place(tensor) or "cpu"
    if where == origin:
        return tensor
    if where == "cpu" and not non_blocking:
        wait(current_stream(origin).free)
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
        places = [place(t) for t in given]
        where = next((p for p in places if p not in (None, "cpu")), None)
        if where and name.removeprefix("aten::") in WAITS:
            wait(current_stream(where).free)
        if where and name in ("aten::mm", "aten::addmm"):
            queue(MATMUL, where)
        with torch._C.DisableTorchFunction():  # this is no call of the script
            result = func(*args, **(kwargs or {}))
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


LISTED = torch.tensor, torch.as_tensor  # read numbers of tensors in a list: in C++


class Calls(TorchFunctionMode):
    """Makes tensors where `device=` says, and tells what layers do."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        where, pinned = kwargs.pop("device", None), kwargs.pop("pin_memory", False)
        if where is None and func in _device_constructors():
            where = HERE.default
        if (
            func == torch.Tensor.grad.__set__
            and len(set(map(place, tensors(args)))) > 1
        ):
            raise RuntimeError("assigned grad has data located on a different device")
        if func in LISTED and isinstance(args[0], list | tuple):
            for tensor in tensors(args[0]):
                if tensor.is_cuda:
                    wait(current_stream(tensor.device).free)
        result = func(*args, **kwargs)
        for made in tensors(result):
            if where is not None:
                put(made, named(where))
            elif place(made) is None:
                put(made, "cpu")
        if pinned:
            result.untyped_storage().pinned = True
        if func is nn.functional.linear:
            told = {"device": place(result), "images": len(result)}
            HERE.note("forward", graph=result.requires_grad, **told)
            if result.requires_grad:
                result.register_hook(lambda _: HERE.note("backward", **told))
        return result


def to(original, tensor, *args, non_blocking=False, **kwargs):
    """Stand in for Tensor.to(): to another place without CUDA."""
    where, dtypes = None, []
    for value in [*args, *kwargs.values()]:
        if isinstance(value, torch.dtype):
            dtypes = [value]
        elif isinstance(value, torch.Tensor):
            where, dtypes = value.device, [value.dtype]
        elif type(value) in (str, int, torch.device):  # and no bool
            where = value
    if dtypes:
        tensor = original(tensor, *dtypes)
    if str(where) == "meta":
        return original(tensor, where)
    return tensor if where is None else move(tensor, named(where), non_blocking)


def cuda(_, tensor, device=None, non_blocking=False, **__):
    """Stand in for Tensor.cuda()."""
    return move(tensor, named("cuda" if device is None else device), non_blocking)


def pin_memory(_, tensor, device=None):
    """Stand in for Tensor.pin_memory()."""
    if tensor.is_cuda:
        raise RuntimeError("only dense CPU tensors can be pinned")
    copy = tensor.clone()
    copy.untyped_storage().pinned = True
    return copy


def is_pinned(_, tensor, device=None):
    return hasattr(tensor.untyped_storage(), "pinned")


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


def scatter(_, tensor, devices=None, chunk_sizes=None, dim=0, streams=None):
    """Stand in for comm.scatter(): the parts of a tensor, one on each device."""
    devices = range(HERE.count) if devices is None else devices
    parts = tensor.split(chunk_sizes or -(-tensor.shape[dim] // len(devices)), dim)
    return tuple(move(p, named(d)) for p, d in zip(parts, devices, strict=False))


def gather(_, parts, dim=0, destination=None):
    """Stand in for comm.gather(): the parts joined on a device."""
    where = named("cuda" if destination is None else destination)
    return torch.cat([move(part, where) for part in parts], dim)


def broadcast(_, originals, devices, buffer_size=None):
    """Stand in for comm.broadcast_coalesced(): the first device has the originals."""
    return [[move(t, named(device)) for t in originals] for device in devices]


def apply(_, replicas, inputs, kwargs=None, devices=None):
    """Stand in for parallel_apply(), in whose threads no mode is at work."""
    kwargs = kwargs or [{}] * len(inputs)
    devices = [named(d) for d in devices or range(len(inputs))]
    HERE.note("replicas", devices=devices, training=replicas[0].training)
    outputs = []
    for replica, given, options, device in zip(
        replicas, inputs, kwargs, devices, strict=True
    ):
        with Device(device):
            given = given if isinstance(given, list | tuple) else (given,)
            outputs.append(replica(*given, **options))
    return outputs


def init_process_group(original, backend=None, **options):
    """Stand in for NCCL by gloo; HERE.nccl has Operations refuse what NCCL does."""
    HERE.nccl = backend == "nccl"
    original("gloo", **options)


def set_device(_, device):
    if device is not None and str(device) != "-1":
        HERE.current = int(named(device).removeprefix("cuda:"))


def set_default_device(_, device):
    HERE.default = None if device is None else named(device)


def nothing(_, *args, **options):
    """Stand in for what changes nothing here: memory is not kept account of."""


def zero(_, *args, **options):
    return 0


def card(_, device=None):
    named("cuda" if device is None else device)  # is it there?
    return SimpleNamespace(
        name="a fake GPU", total_memory=2**34, major=8, minor=0,
        multi_processor_count=80,
    )  # fmt: skip


def drop(substitute):
    """Return a substitute that has no use for the original."""
    return lambda _, *args, **options: substitute(*args, **options)


def each(names, substitute):
    """Return {name: substitute} for names in a text."""
    return dict.fromkeys(names.split(), substitute)


BOTH = {  # names of torch.cuda and torch.accelerator -> what is there instead
    "is_available": lambda _: HERE.count > 0,
    "device_count": lambda _: HERE.count,
    "synchronize": drop(synchronize),
    "current_stream": drop(current_stream),
    "set_stream": drop(set_stream),
    "memory_stats": drop(lambda device=None: Counter()),
    **each("memory_allocated max_memory_allocated", zero),
    **each("memory_reserved max_memory_reserved", zero),
    **each("empty_cache reset_peak_memory_stats", nothing),
    **each("reset_accumulated_memory_stats", nothing),
}
API = {
    "torch.cuda": {
        **BOTH,
        "Event": Event,
        "Stream": Stream,
        "StreamContext": StreamContext,
        "device": Device,
        "device_of": DeviceOf,
        "stream": drop(StreamContext),
        "default_stream": drop(default_stream),
        "current_device": lambda _: HERE.current,
        "set_device": set_device,
        "get_device_properties": card,
        "get_device_name": lambda _, device=None: card(_, device).name,
        "get_device_capability": lambda _, device=None: (8, 0),
        "can_device_access_peer": lambda _, device, peer: True,
        "mem_get_info": lambda _, device=None: (2**34, 2**34),
        "memory_summary": lambda *_, **__: "nothing is kept account of",
        "memory_snapshot": lambda *_, **__: [],
        "is_initialized": lambda _: True,
        "is_bf16_supported": lambda *_, **__: True,
        "is_tf32_supported": lambda _: True,
        "is_current_stream_capturing": lambda _: False,
        "initial_seed": drop(torch.initial_seed),
        "get_rng_state": lambda _, device="cuda": torch.get_rng_state(),
        "get_rng_state_all": lambda _: [torch.get_rng_state()] * HERE.count,
        # Numbers are drawn by the CPU's generator, which is not the GPU's to seed.
        **each("manual_seed manual_seed_all seed seed_all", nothing),
        **each("set_rng_state set_rng_state_all init ipc_collect", nothing),
        **each("set_per_process_memory_fraction", nothing),
        **each("reset_max_memory_allocated reset_max_memory_cached", nothing),
        **each("memory_cached max_memory_cached", zero),
    },
    "torch.accelerator": {
        **BOTH,
        "current_accelerator": lambda _, check_available=False: torch.device("cuda"),
        **each("current_device_index current_device_idx", lambda _: HERE.current),
        **each("set_device_index set_device_idx", set_device),
        "device_index": Device,
        "get_memory_info": lambda _, device=None: (2**34, 2**34),
        "empty_host_cache": nothing,
    },
}
AS_IS = {  # what needs no GPU
    "AcceleratorError", "CudaError", "cudaStatus", "DeferredCudaCallError", "OutOfMemoryError",
    "get_allocator_backend", "get_arch_list", "get_gencode_flags",
}  # fmt: skip


def refused(name, original):
    """Return what stands for a function or class that the stand-in does not have."""

    def refuse(*_, **__):
        raise NotImplementedError(LIMIT.format(name))

    if isinstance(original, type):
        return type(original.__name__, (), {"__init__": refuse})
    return refuse


def public(module):
    """Return the names that a module offers, those of its submodules left out."""
    found = {name: getattr(module, name) for name in dir(module)}
    return [
        name for name, value in found.items()
        if not name.startswith("_") and not inspect.ismodule(value)
        and (name in module.__all__ or name.endswith("Error"))
    ]  # fmt: skip


def gpus(count, note, usable=True, speed=1.0):
    """Have torch believe in `count` GPUs that work through a queue, in their own time.

    What a script measures does not depend on the machine: a call takes CALL ms, a
    product of matrices MATMUL / speed, a wait WAIT. `note` is called with what layers
    do, with waits and with replicas. GPUs that are not `usable` are seen by NVML alone:
    the driver is too old for this PyTorch.
    """
    if not (usable and count):
        install("torch.cuda:is_available", lambda _: False)
        install("torch.cuda:device_count", lambda _: count)
        return
    HERE.count, HERE.note, HERE.speed, HERE.queues = count, note, speed, []
    HERE.streams = {f"cuda:{n}": Stream(n) for n in range(count)}
    for name, answers in API.items():
        module = resolve_name(name)
        for rest in set(public(module)) - set(answers) - AS_IS:
            if callable(original := getattr(module, rest)):
                setattr(module, rest, refused(f"{name}.{rest}", original))
        for attribute, substitute in answers.items():
            install(f"{name}:{attribute}", substitute)
    replace("torch.cuda:_lazy_init", lambda _: refused("CUDA", None)())
    replace("torch.cuda.nccl:is_available", lambda _, tensors: False)
    for name in CLOCKS:
        ticks = 1e6 if name.endswith("_ns") else 1e-3  # in a ms
        kind = int if name.endswith("_ns") else float
        told = partial(lambda t, k, _: k(HERE.now * t), ticks, kind)
        replace(f"time:{name}", told)
    replace("timeit:default_timer", lambda _: HERE.now / 1000)
    replace("datetime:datetime", Datetime)
    replace("torch:Stream", Stream)
    replace("torch:Event", lambda _, device=None, **options: Event(**options))
    replace("torch:set_default_device", set_default_device)
    device = property(lambda tensor: torch.device(place(tensor) or "cpu"))
    replace("torch:Tensor.device", device)
    replace("torch:Tensor.is_cuda", property(lambda t: t.device.type == "cuda"))
    replace("torch:Tensor.get_device", lambda _, t: t.device.index if t.is_cuda else -1)
    replace("torch:Tensor.to", to)
    replace("torch:Tensor.cpu", lambda _, tensor, **__: move(tensor, "cpu"))
    replace("torch:Tensor.cuda", cuda)
    replace("torch:Tensor.pin_memory", pin_memory)
    replace("torch:Tensor.is_pinned", is_pinned)
    replace("torch:Tensor.record_stream", nothing)
    replace("torch:Tensor.numpy", numpy)
    replace("torch:Tensor.tolist", tolist)
    replace("torch.nn.parallel:parallel_apply", apply)
    replace("torch.nn.parallel.data_parallel:parallel_apply", apply)
    replace("torch.nn.parallel.comm:scatter", scatter)
    replace("torch.nn.parallel.comm:gather", gather)
    replace("torch.nn.parallel.comm:broadcast_coalesced", broadcast)
    replace("torch.distributed:init_process_group", init_process_group)
    replace(
        "torch.distributed.distributed_c10d:_get_object_coll_device",
        lambda original, group=None: "cuda" if HERE.nccl else original(group),
    )
    torch.serialization.register_package(5, tag, restore)
    Operations().__enter__()
    Calls().__enter__()


def tag(storage):
    """Return the device that torch.save writes down for a storage, or None: the CPU."""
    where = getattr(storage, "place", None)
    return where if where != "cpu" else None


def restore(storage, location):
    """Put a storage that torch.load has read on the device written down for it."""
    if location.startswith("cuda"):
        storage.place = named(location)
        HERE.note("restored", device=storage.place)
        return storage


one_gpu, two_gpus, three_gpus = partial(gpus, 1), partial(gpus, 2), partial(gpus, 3)
FAST = 3.0
fast_gpu = partial(gpus, 1, speed=FAST)


def slow_disk(note):
    """Have torch.save take 0.05 s longer, and time.sleep none: who waits, has to be told.

    It gives the process no GPU.
    """
    from time import sleep

    def save(original, *args, **options):
        sleep(0.05)
        return original(*args, **options)

    replace("torch:save", save)
    replace("time:sleep", nothing)


def machines(note):
    """Have each rank be the only one of its machine; they share the folders."""
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
