"""A script that asks for GPUs and NCCL gets CPUs and gloo."""

import os
import sys
from collections import defaultdict
from types import SimpleNamespace

import torch
from torch.overrides import TorchFunctionMode

from tools.watch.replace import replace

MADE_HERE = ["set_device", "synchronize", "empty_cache", "init", "manual_seed"]
MADE_HERE += ["manual_seed_all", "reset_peak_memory_stats", "ipc_collect"]
NUMBERS = ["memory_allocated", "max_memory_allocated", "memory_reserved"]
NUMBERS += ["max_memory_reserved"]


class OnCpu(TorchFunctionMode):
    """A mode in which "cuda" is a name of the CPU for all of torch's functions."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        args = [on_cpu(value) for value in args]
        if function is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
            args[1] = "cpu"  # it was the number of a GPU
        kwargs = {name: on_cpu(value) for name, value in (kwargs or {}).items()}
        return function(*args, **kwargs)


def on_cpu(value):
    """Return a device on a GPU as the CPU, and anything else as it is."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    return value


def same(original, tensor_or_module, *args, **options):
    """In place of `cuda` of a tensor or a module."""
    return tensor_or_module


def move(original, module, *args, **options):
    """In place of a module's `to`: the number of a GPU is the CPU, too."""
    places = ["cpu" if type(value) is int else on_cpu(value) for value in args]
    options = {name: on_cpu(value) for name, value in options.items()}
    return original(module, *places, **options)


def for_script(answer):
    """Return a substitute that answers the script so; PyTorch gets the truth."""

    def substitute(original, *args, **options):
        asker = sys._getframe(2).f_code.co_filename
        return original(*args, **options) if "site-packages" in asker else answer()

    return substitute


def nothing(original, *args, **options):
    """In place of what only a GPU needs."""


def zero(original, *args, **options):
    """In place of a number that only a GPU has."""
    return 0


def statistics(original, *args, **options):
    """In place of torch.cuda.memory_stats."""
    return defaultdict(int)


def properties(original, *args, **options):
    """In place of torch.cuda.get_device_properties."""
    return SimpleNamespace(name="CPU", total_memory=0, major=0, minor=0)


def local_rank(original=None):
    """In place of torch.cuda.current_device."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def local_world_size(original=None):
    """In place of torch.cuda.device_count."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def init_process_group(original, backend=None, *args, **options):
    """Around init_process_group: gloo, whatever was asked for."""
    options.pop("device_id", None)
    return original("gloo", *args, **options)


def new_group(original, ranks=None, timeout=None, backend=None, *args, **options):
    """Around new_group: gloo."""
    options.pop("device_id", None)
    return original(ranks, timeout, "gloo", *args, **options)


def ddp_init(original, ddp, module, *args, **options):
    """Around the constructor of DDP: without devices."""
    options.pop("device_ids", None)
    options.pop("output_device", None)
    return original(ddp, module, **options)


def init_device_mesh(original, device_type, *args, **options):
    """Around init_device_mesh."""
    return original("cpu", *args, **options)


def spawn(original, function, args=(), nprocs=1, *rest, **options):
    """In place of torch.multiprocessing.spawn: this rank is one of those processes."""
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)  # it names an address itself
    function(local_rank(), *args)


def compiled(original, model=None, *args, **options):
    """In place of torch.compile: the model as it is."""
    return model if model is not None else lambda function: function


class UnsyncedBatchNorm(torch.nn.SyncBatchNorm):
    """In place of SyncBatchNorm, which needs GPUs: each rank has its own statistics."""

    used = False

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        UnsyncedBatchNorm.used = True
        return module


def install():
    """Put the functions above in place."""
    for name in MADE_HERE:
        replace(f"torch.cuda:{name}", nothing)
    for name in NUMBERS:
        replace(f"torch.cuda:{name}", zero)
    replace("torch.cuda:memory_stats", statistics)
    replace("torch.cuda:get_device_properties", properties)
    replace("torch.cuda:current_device", local_rank)
    replace("torch.cuda:device_count", local_world_size)
    accelerator = "torch.accelerator"
    replace(f"{accelerator}:is_available", for_script(lambda: True))
    replace(f"{accelerator}:device_count", for_script(local_world_size))
    gpu = torch.device("cuda")
    replace(f"{accelerator}:current_accelerator", for_script(lambda: gpu))
    replace(f"{accelerator}:set_device_index", nothing)
    replace(f"{accelerator}:synchronize", nothing)
    replace("torch:Tensor.cuda", same)
    replace("torch:Tensor.pin_memory", same)
    replace("torch.nn:Module.to", move)
    replace("torch.nn:Module.cuda", same)
    replace("torch.distributed:init_process_group", init_process_group)
    replace("torch.distributed:new_group", new_group)
    replace("torch.distributed:init_device_mesh", init_device_mesh)
    replace("torch.distributed.device_mesh:init_device_mesh", init_device_mesh)
    replace("torch.nn.parallel:DistributedDataParallel.__init__", ddp_init)
    replace("torch.nn:SyncBatchNorm", UnsyncedBatchNorm)
    replace("torch.multiprocessing:spawn", spawn)
    replace("torch:compile", compiled)
    OnCpu().__enter__()
