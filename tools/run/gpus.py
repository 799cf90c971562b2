"""Which GPUs and CPU cores there are, and what GPUS= makes of them."""

import os
import re
import warnings

from tools.run.stages import refuse


def count_cpus():
    """Return on how many cores this process may run: `taskset` may leave it fewer."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def count_gpus():
    """Return how many GPUs the stages can use.

    CUDA says so. NVML alone may count GPUs whose driver is too old for this PyTorch.
    """
    import torch  # takes seconds: what needs no GPU does not wait for it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `make doctor` says what is wrong
        return torch.cuda.device_count() if torch.cuda.is_available() else 0


def choose_gpus(text):
    """Return what GPUS=`text` stands for: a list of texts for CUDA_VISIBLE_DEVICES.

    `text` is `cpu` or numbers such as `0,1`. If CUDA_VISIBLE_DEVICES is set already,
    0 means the first GPU that it lists. Refuses GPUs that are not there.
    """
    if text == "cpu":
        return []
    numbers = [str(number) for number in range(count_gpus())]
    if not numbers:
        refuse(f"GPUS={text}: CUDA finds no GPU ('make doctor' says why): use GPUS=cpu")
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = listed.split(",") if listed else numbers
    chosen = text.split(",")
    if len(set(chosen)) < len(chosen) or not set(numbers) >= set(chosen):
        has = ",".join(numbers)
        refuse(f"GPUS={text}: there are {has}: use GPUS={has} or some, each once")
    return [names[int(number)].strip() for number in chosen]


def positive(name, text):
    """Return the number in the make variable `name`; refuses what is below 1."""
    if not re.fullmatch(r"0*[1-9]\d*", text):
        refuse(f"{name}={text!r} must be a whole number of at least 1: {name}=2, say")
    return int(text)
