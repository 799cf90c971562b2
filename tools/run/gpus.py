"""Count GPUs and CPU cores, and read GPUS=."""

import os
import re
import warnings

from tools.run.stages import refuse


def count_cpus():
    """Return how many cores this process may use; `taskset` can reduce them."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def count_gpus():
    """Return how many GPUs the stages can use.

    Asks CUDA, because NVML may count GPUs whose driver is too old for this PyTorch.
    """
    import torch  # takes seconds, so only if needed

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `make doctor` shows what is wrong
        return torch.cuda.device_count() if torch.cuda.is_available() else 0


def choose_gpus(text):
    """Return the list of entries for CUDA_VISIBLE_DEVICES that `GPUS=text` selects.

    `text` is `cpu` or numbers such as `0,1`. If CUDA_VISIBLE_DEVICES is already set,
    0 means the first GPU in it. Refuses GPUs that do not exist.
    """
    if text == "cpu":
        return []
    numbers = [str(number) for number in range(count_gpus())]
    if not numbers:
        refuse(f"GPUS={text}: CUDA finds no GPU (see make doctor). Use GPUS=cpu")
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = listed.split(",") if listed else numbers
    chosen = text.split(",")
    if len(set(chosen)) < len(chosen) or not set(numbers) >= set(chosen):
        has = ",".join(numbers)
        refuse(f"GPUS={text}: expected one or more of {has}, each once")
    return [names[int(number)].strip() for number in chosen]


def positive(name, text):
    """Return the value of make variable `name`, an int; refuses values below 1."""
    if not re.fullmatch(r"0*[1-9]\d*", text):
        refuse(f"{name}={text}: expected a whole number of at least 1")
    return int(text)
