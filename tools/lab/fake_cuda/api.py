"""The public names of torch.cuda and torch.accelerator, for fake GPUs.

ANSWERS has what is answered. Every other function or class, such as CUDA graphs, ends
in one sentence which says that this is the lab's limit.
"""

import inspect
from pkgutil import resolve_name
from types import SimpleNamespace

import torch

from tools.lab.fake_cuda import clock
from tools.lab.fake_cuda.state import STATE, current_device, device_name, set_device
from tools.lab.patches import replace

MEMORY = 2**34  # bytes of a GPU


def nothing(*_, **__):
    """Stand in for what changes nothing here."""


def no_bytes(device=None):
    """Stand in for the amounts of memory, of which the lab keeps no account."""
    return 0


def properties(device=None):
    """Stand in for torch.cuda.get_device_properties()."""
    device_name(device)  # is it there?
    return SimpleNamespace(
        name="a fake GPU",
        total_memory=MEMORY,
        major=8,
        minor=0,
        multi_processor_count=80,
    )


BOTH = {  # name in torch.cuda and in torch.accelerator -> what is there instead
    "is_available": lambda: STATE.count > 0,
    "device_count": lambda: STATE.count,
    "synchronize": clock.synchronize,
    "current_stream": clock.current_stream,
    "set_stream": clock.set_stream,
    "memory_allocated": no_bytes,
    "max_memory_allocated": no_bytes,
    "memory_reserved": no_bytes,
    "max_memory_reserved": no_bytes,
    "empty_cache": nothing,
    "reset_peak_memory_stats": nothing,
}
CUDA = {
    "Event": clock.Event,
    "Stream": clock.Stream,
    "device": current_device,
    "stream": clock.stream_context,
    "default_stream": clock.default_stream,
    "current_device": lambda: STATE.current,
    "set_device": set_device,
    "get_device_properties": properties,
    "get_device_name": lambda device=None: properties(device).name,
    "get_device_capability": lambda device=None: (8, 0),
    "mem_get_info": lambda device=None: (MEMORY, MEMORY),
    "init": nothing,
    "is_initialized": lambda: True,
    "is_bf16_supported": lambda including_emulation=True: True,
    "is_current_stream_capturing": lambda: False,
    # Numbers are drawn by the CPU's generator, which is not the GPU's to seed.
    "manual_seed": nothing,
    "manual_seed_all": nothing,
    "get_rng_state": lambda device="cuda": torch.get_rng_state(),
    "get_rng_state_all": lambda: [torch.get_rng_state()] * STATE.count,
    "set_rng_state": nothing,
    "set_rng_state_all": nothing,
}
ACCELERATOR = {
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "current_device_index": lambda: STATE.current,
    "set_device_index": set_device,
    "device_index": current_device,
}
ANSWERS = {"torch.cuda": BOTH | CUDA, "torch.accelerator": BOTH | ACCELERATOR}
NEEDS_NO_GPU = {  # they stay as they are
    "AcceleratorError",
    "CudaError",
    "cudaStatus",
    "DeferredCudaCallError",
    "OutOfMemoryError",
    "get_allocator_backend",
    "get_arch_list",
    "get_gencode_flags",
}


def refused(name, original):
    """Return what stands in for a function or class that a fake GPU does not have."""

    def refuse(*_, **__):
        raise NotImplementedError(
            f"{name}: the lab's fake GPU does not have it. That is the lab's limit, "
            "not a mistake of yours."
        )

    if isinstance(original, type):
        return type(original.__name__, (), {"__init__": refuse})
    return refuse


def public_names(module):
    """Return the names that a module offers, those of its submodules left out."""
    found = []
    for name in dir(module):
        offered = name in module.__all__ or name.endswith("Error")
        submodule = inspect.ismodule(getattr(module, name))
        if offered and not submodule and not name.startswith("_"):
            found.append(name)
    return found


def refused_names(name):
    """Return the public functions and classes of a module that are refused, sorted."""
    module = resolve_name(name)
    found = []
    for attribute in sorted(set(public_names(module)) - NEEDS_NO_GPU):
        if attribute not in ANSWERS[name] and callable(getattr(module, attribute)):
            found.append(attribute)
    return found


def install():
    """Answer or refuse every public function and class of both modules."""
    for name, answers in ANSWERS.items():
        module = resolve_name(name)
        for attribute in refused_names(name):
            original = getattr(module, attribute)
            setattr(module, attribute, refused(f"{name}.{attribute}", original))
        for attribute, answer in answers.items():
            setattr(module, attribute, answer)
    replace("torch.cuda:_lazy_init", refused("CUDA", None))
