"""The public names of torch.cuda and torch.accelerator, for fake GPUs.

ANSWERS has what is answered. Every other function or class, such as CUDA graphs, ends
in one sentence which says that this is the lab's limit.
"""

from pkgutil import resolve_name
from types import SimpleNamespace

import torch

from tools.lab.fake_cuda import clock
from tools.lab.fake_cuda.state import STATE, current_device, device_name, set_device
from tools.lab.patches import replace


def nothing(*_, **__):
    """Stand in for what changes nothing here."""


def no_bytes(device=None):
    """Stand in for the amounts of memory, of which the lab keeps no account."""
    return 0


def get_device_name(device=None):
    """Stand in for torch.cuda.get_device_name()."""
    return f"a fake {device_name(device)}"


def get_device_properties(device=None):
    """Stand in for the function of that name: all GPUs are alike."""
    name = get_device_name(device)
    return SimpleNamespace(name=name, total_memory=2**34, multi_processor_count=80)


BOTH = {  # name in torch.cuda and in torch.accelerator -> what is there instead
    "is_available": lambda: STATE.count > 0,
    "device_count": lambda: STATE.count,
    "synchronize": clock.synchronize,
    "current_stream": clock.current_stream,
    "memory_allocated": no_bytes,
    "max_memory_allocated": no_bytes,
    "empty_cache": nothing,
    "reset_peak_memory_stats": nothing,
}
CUDA = {
    "Event": clock.Event,
    "Stream": clock.Stream,
    "device": current_device,
    "stream": clock.stream_context,
    "current_device": lambda: STATE.current,
    "set_device": set_device,
    "get_device_name": get_device_name,
    "get_device_properties": get_device_properties,
    "get_device_capability": lambda device=None: (8, 0),
    "is_initialized": lambda: True,
    "is_bf16_supported": lambda including_emulation=True: True,
    "is_current_stream_capturing": lambda: False,
    # Numbers are drawn by the CPU's generator, which is not the GPU's to seed.
    "manual_seed": nothing,
    "manual_seed_all": nothing,
}
ACCELERATOR = {
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "current_device_index": lambda: STATE.current,
    "set_device_index": set_device,
    "device_index": current_device,
}
ANSWERS = {"torch.cuda": BOTH | CUDA, "torch.accelerator": BOTH | ACCELERATOR}


def refused(name, original=None):
    """Return what stands in for a function or class that a fake GPU does not have."""

    def refuse(*_, **__):
        raise NotImplementedError(
            f"{name}: the lab's fake GPU does not have it. That is the lab's limit, "
            "not a mistake of yours."
        )

    if isinstance(original, type):
        return type(original.__name__, (), {"__init__": refuse})
    return refuse


def install():
    """Answer or refuse every public function and class of both modules."""
    for name, answers in ANSWERS.items():
        module = resolve_name(name)
        for attribute in module.__all__:
            original = getattr(module, attribute)
            if callable(original):  # which a submodule is not
                setattr(module, attribute, refused(f"{name}.{attribute}", original))
        for attribute, answer in answers.items():
            setattr(module, attribute, answer)
    replace("torch.cuda:_lazy_init", refused("CUDA"))
