"""Which GPUs there are, which a run uses, and how many processes it starts on them."""

import os
import re
import warnings

from tools.run.stages import BY_NAME, CPU_PROCESSES, refuse


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
    count = count_gpus()
    if count == 0:
        refuse(f"GPUS={text}: CUDA finds no GPU ('make doctor' says why): use GPUS=cpu")
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    numbers = [str(number) for number in range(count)]
    devices = listed.split(",") if listed else numbers
    names = dict(zip(numbers, devices, strict=False))
    chosen = text.split(",")
    if len(set(chosen)) < len(chosen) or not names.keys() >= set(chosen):
        has = f"CUDA_VISIBLE_DEVICES={listed} shows" if listed else "this machine has"
        has += f" {in_words(count)}, {','.join(numbers)}"
        advice = f"use GPUS={','.join(numbers)} or some of them, each once"
        refuse(f"GPUS={text}: {has}; {advice}")
    return [names[number].strip() for number in chosen]


def in_words(count):
    """Return `1 GPU` or `3 GPUs`."""
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def positive(name, text):
    """Return the number in the make variable `name`; refuses what is below 1."""
    if not re.fullmatch(r"0*[1-9]\d*", text):
        refuse(f"{name}={text!r} must be a whole number of at least 1: {name}=2, say")
    return int(text)


def plan_gpus(stage, given):
    """Return (the GPUs that a stage may use, how many, notes for the user).

    The GPUs are texts for CUDA_VISIBLE_DEVICES, or None if the run may see all of them.
    They are not counted for a stage that torchrun does not start.
    """
    if "GPUS" in given:
        chosen = choose_gpus(given["GPUS"])
        if stage == "02_single_gpu":
            chosen = chosen[:1]
        return None if stage == "01_cpu" else chosen, len(chosen), []
    if stage not in CPU_PROCESSES:
        return None, 0, []
    count = count_gpus()
    can_share = BY_NAME[stage].shares_gpus or "NPROC" in given or "NNODES" in given
    if count == 1 and not can_share:
        note = "1 GPU: each process needs one of its own, so they run on the CPU"
        return [], 0, [note]
    return None, count, []


def choose_processes(stage, given, count, batch, nodes):
    """Return (how many processes run on this node, notes for the user).

    As many as NPROC says, or one for each of `count` GPUs, or as many as the stage
    takes on a CPU. The processes of all nodes together need equal shares of `batch`
    images. Refuses an NPROC or GPUS for which that is impossible. If neither is given,
    takes the largest number that works, and two on a single GPU.
    """
    row = BY_NAME[stage]
    notes = []
    wanted = count or row.cpu_processes
    if "NPROC" in given:
        wanted = positive("NPROC", given["NPROC"])
        if wanted > count > 0 and not row.shares_gpus:
            why = f"each process needs a GPU of its own; here are {count}"
            refuse(f"NPROC={wanted}: {why}")
    elif count == nodes == 1 and row.shares_gpus and "GPUS" not in given:
        wanted = row.cpu_processes
        notes.append("1 GPU: 2 processes share it, over gloo; GPUS=0 takes one, alone")
    problem = misfit(stage, wanted * nodes, batch)
    if not problem:
        return wanted, notes
    why, advice = problem
    fewer = [n for n in range(1, wanted) if not misfit(stage, n * nodes, batch)]
    is_asked_for = "NPROC" in given or "GPUS" in given
    if is_asked_for or not fewer or fewer[-1] * nodes == 1:
        refuse(f"{why}: use {advice}")
    takes_all = f"; with {advice} all do" if "ARGS" in advice else ""
    notes.append(f"{why}: {fewer[-1] * nodes} run{takes_all}")
    return fewer[-1], notes


def misfit(stage, ranks, batch):
    """Return (why so many ranks cannot run a stage, what can), or None."""
    row = BY_NAME[stage]
    if row.only_processes not in (None, ranks):
        count = row.only_processes
        return f"{stage} runs on {count} processes", f"NPROC={count}"
    together = row.together or ranks
    if ranks % together:
        more = ranks + together - ranks % together
        return f"{stage} needs a multiple of {together} processes", f"NPROC={more}"
    shares = ranks // together
    if batch % shares == 0:
        return None
    lower = max(batch // shares, 1) * shares
    why = f"{ranks} processes cannot share a batch of {batch} images"
    return why, f"ARGS='--batch-size {lower}' or {lower + shares}"
