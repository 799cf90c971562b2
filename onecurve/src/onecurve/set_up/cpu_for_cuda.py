"""Run scripts that ask for GPUs and NCCL on CPUs and gloo."""

import os
import sys
from collections import defaultdict
from datetime import timedelta
from functools import partial
from types import SimpleNamespace

import torch
from torch.overrides import TorchFunctionMode

from onecurve.set_up import compiled
from onecurve.set_up.replace import replace

GPU = torch.device("cuda")
PYTORCH = os.path.dirname(torch.__file__) + os.sep
LEFT_OUT = ["torch.cuda:set_device", "torch.cuda:synchronize", "torch.cuda:empty_cache"]
LEFT_OUT += ["torch.cuda:manual_seed", "torch.cuda:manual_seed_all"]
LEFT_OUT += ["torch.cuda:reset_peak_memory_stats", "torch.accelerator:synchronize"]
LEFT_OUT += ["torch.cuda:set_stream", "torch.accelerator:set_stream"]
LEFT_OUT += ["torch:Tensor.record_stream", "torch.accelerator:set_device_index"]
LEFT_OUT += ["torch.cuda:init", "torch.cuda:set_rng_state"]
LEFT_OUT += [f"torch.cuda:reset_max_memory_{what}" for what in ("allocated", "cached")]
AS_IT_IS = ["torch:Tensor.cuda", "torch:Tensor.pin_memory", "torch.nn:Module.cuda"]
AS_IT_IS += ["torch.storage:_StorageBase.cuda", "torch.storage:TypedStorage.cuda"]
MOVES = ["torch.nn:Module.to", "torch:load", "torch.storage:_StorageBase.to"]
MOVES += ["torch.serialization:default_restore_location"]  # for map_location
MOVES += ["torch.distributed.fsdp:FullyShardedDataParallel.__init__"]  # device_id


class CpuForCuda(TorchFunctionMode):
    """A mode in which "cuda" means the CPU in all torch functions."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.device:  # the script may read its type
            return function(*args, **(kwargs or {}))
        args = [on_cpu(value) for value in args]
        if function is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
            args[1] = "cpu"  # it was a GPU's index
        kwargs = {name: on_cpu(value) for name, value in (kwargs or {}).items()}
        if type(kwargs.get("device")) is int:
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


def on_cpu(value):
    """Return the CPU for a GPU device, and other values unchanged."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    return value


def place(value):
    """Return the CPU for a GPU or its index, also in a dict."""
    if isinstance(value, dict):
        return {name: on_cpu(one) for name, one in value.items()}
    return "cpu" if type(value) is int else on_cpu(value)


def move(original, *args, **options):
    """Replace MOVES, so that a GPU or its index means the CPU."""
    options = {name: place(value) for name, value in options.items()}
    return original(*map(place, args), **options)


def fork_rng(original, devices=None, enabled=True, *args, **options):
    """Replace fork_rng, because there are no GPU generators."""
    return original([], enabled, device_type="cpu")


def nothing(original, *args, **options):
    """Replace a function that only GPUs need."""


def same(original, value, *args, **options):
    """Replace a function that moves a tensor or module by one that returns it."""
    return value


class OfCpu(torch.Generator):
    """Replace a GPU's generator by the CPU's."""

    def __new__(cls, device=None):
        return super().__new__(cls)


def to_all(answer, original, *args, **options):
    return answer()


class Done:
    """Replacement for a GPU's event, stream or device context; all work is done."""

    device = torch.device("cpu")

    def __init__(self, *args, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def query(self):
        return True

    def elapsed_time(self, end):
        return 0.0

    def record_event(self, event=None):
        return event or Done()

    record = synchronize = wait = wait_event = wait_stream = __init__


def to_script(answer, original, *args, **options):
    """Replace a function's result for the script; PyTorch gets the real one."""
    asker = sys._getframe(2).f_code.co_filename
    return original(*args, **options) if asker.startswith(PYTORCH) else answer()


def local_rank():
    """Return the current GPU's index."""
    return int(os.environ["LOCAL_RANK"])


def local_world_size():
    """Return the number of GPUs on this machine."""
    return int(os.environ["LOCAL_WORLD_SIZE"])


TO_SCRIPT = {  # results of torch's functions: each rank has a GPU
    "cuda:is_available": lambda: True,
    "cuda:device_count": local_world_size,
    "accelerator:is_available": lambda: True,
    "accelerator:device_count": local_world_size,
    "accelerator:current_accelerator": lambda: GPU,
}
TO_ALL = {
    "cuda:get_device_name": lambda: "CPU",
    "cuda:get_device_capability": lambda: (8, 0),
    "cuda:is_bf16_supported": lambda: True,
    "cuda:memory_allocated": lambda: 0,
    "cuda:max_memory_allocated": lambda: 0,
    "cuda:memory_reserved": lambda: 0,
    "cuda:max_memory_reserved": lambda: 0,
    "cuda:current_stream": Done,
    "cuda:default_stream": Done,
    "cuda:current_device": local_rank,
    "cuda:get_device_properties": partial(
        SimpleNamespace, name="CPU", total_memory=1, major=0, minor=0
    ),
    "cuda:memory_stats": lambda: defaultdict(int),
    "cuda:memory_summary": str,
    "cuda:mem_get_info": lambda: (1, 1),
    "cuda:initial_seed": torch.initial_seed,
    "cuda:get_rng_state": torch.get_rng_state,
    "accelerator:current_stream": Done,
    "accelerator:current_device_index": local_rank,
}


def join(limit, original, backend=None, init_method=None, timeout=None, *more, **how):
    how.pop("device_id", None)
    return original("gloo", init_method, limit, *more, **how)


def new_group(original, ranks=None, timeout=None, backend=None, *args, **options):
    return original(ranks, timeout, "gloo", *args, **options)


def ddp_init(original, ddp, module, *args, **options):
    """Wrap DDP's constructor to drop device arguments."""
    options.pop("device_ids", None)
    options.pop("output_device", None)
    return original(ddp, module, **options)


def gather(original, output_tensor, input_tensor, *args, **options):
    """Wrap a gathering into a tensor: gloo, unlike NCCL, rejects one with gradients."""
    return original(output_tensor, input_tensor.detach(), *args, **options)


def scaler_state(original, scaler):
    """Wrap GradScaler.state_dict, which is empty without a GPU."""
    initial = {"scale": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5}
    initial |= {"growth_interval": 2000, "_growth_tracker": 0}
    return initial | original(scaler)


def init_device_mesh(original, device_type, *args, **options):
    return original("cpu", *args, **options)


class UnsyncedBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """Replacement for SyncBatchNorm, which needs GPUs: statistics are per rank."""

    used = False
    _check_input_dim = torch.nn.SyncBatchNorm._check_input_dim

    def __init__(self, *args, process_group=None, **options):
        UnsyncedBatchNorm.used = True
        super().__init__(*args[:5], **options)  # the sixth is the group

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        UnsyncedBatchNorm.used = True
        return module


def install(patience):
    """Install the replacements above; collectives time out after `patience` seconds."""
    for name in LEFT_OUT:
        replace(name, nothing)
    for name in AS_IT_IS:
        replace(name, same)
    for name in MOVES:
        replace(name, move)
    replace("torch:compile", compiled.compiled)
    replace("torch.random:fork_rng", fork_rng)
    for name, answer in TO_SCRIPT.items():
        replace(f"torch.{name}", partial(to_script, answer))
    for name in "Event", "Stream":
        replace(f"torch:{name}", Done)
        replace(f"torch.cuda:{name}", Done)
    replace("torch.cuda:device", Done)
    replace("torch:Generator", OfCpu)
    for name, answer in TO_ALL.items():
        replace(f"torch.{name}", partial(to_all, answer))
    limit = timedelta(seconds=patience)
    replace("torch.distributed:init_process_group", partial(join, limit))
    replace("torch.distributed:new_group", new_group)
    replace("torch.distributed:all_gather_into_tensor", gather)
    replace("torch.amp:GradScaler.state_dict", scaler_state)
    replace("torch.distributed:init_device_mesh", init_device_mesh)
    replace("torch.distributed.device_mesh:init_device_mesh", init_device_mesh)
    replace("torch.nn.parallel:DistributedDataParallel.__init__", ddp_init)
    replace("torch.nn:SyncBatchNorm", UnsyncedBatchNorm)
    CpuForCuda().__enter__()
