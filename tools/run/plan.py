"""Plan a run such as `make ddp GPUS=0,1`: its command, processes, GPUs and flags.

Nothing is written or started here. If a variable or flag cannot work, the program exits
with a line that says what does.
"""

import argparse
import ast
import math
import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tools.run import gpus
from tools.run.data import shown
from tools.run.gpus import positive
from tools.run.stages import BY_NAME, refuse, script, too_old


@dataclass(frozen=True)
class Plan:
    """One run of a stage."""

    stage: str
    processes: int  # started by torchrun; 0: one process, no torchrun
    environment: dict  # variables for the command, {name: value}
    command: list  # the full command: python or torchrun, options, script, flags
    words: list  # the script and its flags
    args: argparse.Namespace  # the same flags as parsed by the script
    writes: bool  # whether it trains and prepares the results folder


def make_plan(stage, settings, several=False):
    """Return the Plan of a stage for make's variables, {name: value}.

    An empty value means that a variable was not given. Refuses variables that the
    stage would ignore, unless it is one of `several` stages.
    """
    wrong = too_old(version("torch"), [stage])
    if wrong:
        refuse(wrong)
    row = BY_NAME[stage]
    given = {name: text for name, text in settings.items() if text}
    for name, why in ignored(row, several).items():
        if name in given and not several:
            refuse(f"{name}={given[name]}: {why}")
        given.pop(name, None)
    flags = plan_flags(given)
    if not {*row.usual[:1]} & {*flags}:
        flags = [*row.usual, *flags]
    args = parse_flags(stage, flags)
    refuse_invalid_numbers(args)
    evaluates = bool(getattr(args, "checkpoint", None))
    # This tutorial's kernels are tiny. More threads gain little on an idle machine
    # and spend most of their time waiting for each other on a busy one.
    environment = {} if "OMP_NUM_THREADS" in given else {"OMP_NUM_THREADS": "1"}
    visible, count = plan_gpus(row, given)
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(visible)
    if row.quiet:
        environment["TORCH_LOGS"] = f"-{row.quiet}"
    launcher = [str(shown(sys.executable))]
    processes = 0
    if row.cpu_processes:
        processes = plan_processes(row, given, count, args)
        launcher = [*torchrun(), "--standalone", f"--nproc-per-node={processes}"]
        if count and (processes > count or row.only_gloo):  # NCCL would refuse
            flags = ["--backend", "gloo", *flags]
    if "RESTARTS" in given:
        launcher.append(f"--max-restarts={positive('RESTARTS', given['RESTARTS'])}")
        # Otherwise new ranks may read the addresses of dead ones and hang:
        # https://github.com/pytorch/pytorch/issues/135712
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        flags.append("--resume")
    words = [str(shown(script(stage))), *flags]
    command = [*launcher, *words]
    return Plan(stage, processes, environment, command, words, args, not evaluates)


def ignored(row, several):
    """Return the variables that a stage does not use: {name: why}."""
    found = {}
    if not row.cpu_processes:
        found["NPROC"] = f"{row.name} runs in one process. For more, try make ddp"
    elif several and (row.only_processes or row.parts == "blocks"):
        found["NPROC"] = f"{row.name} runs on {row.cpu_processes} processes"
    if row.room == "transformer":
        why = f"{row.name} trains on random tokens. Try: ARGS='--steps 30'"
        found |= dict.fromkeys(["DATA", "EPOCHS"], why)
    if not row.state:
        found["RESTARTS"] = "only for resume and sharded_checkpoint"
    return found


def torchrun():
    """Return the command for torchrun, whose file a system's Python may lack."""
    path = Path(sys.executable).with_name("torchrun")
    if path.exists():
        return [str(shown(path))]
    return [str(shown(sys.executable)), "-m", "torch.distributed.run"]


def plan_flags(given):
    """Return the script's flags for make's variables."""
    flags = []
    for name in "DATA", "OUT":
        if name in given:
            flags += [f"--{name.lower()}", given[name]]
    if "EPOCHS" in given:
        flags += ["--epochs", str(positive("EPOCHS", given["EPOCHS"]))]
    try:
        return flags + shlex.split(given.get("ARGS", ""))
    except ValueError as error:
        refuse(f"ARGS={given['ARGS']!r} cannot be split into words: {error}")


def parse_flags(stage, words):
    """Return the Namespace from the script's own parse_args.

    It rejects wrong flags before anything starts. The rest of the script does not run,
    because its imports would take seconds.
    """
    path = script(stage)
    tree = ast.parse(path.read_text(), path)
    functions = {getattr(node, "name", ""): node for node in tree.body}
    tree.body = [functions["parse_args"]]
    names = {"argparse": argparse, "Path": Path, "__doc__": "", "STAGE": stage}
    names["DEVICE"] = "cpu"  # affects only the default of --backend
    exec(compile(tree, path, "exec"), names)  # noqa: S102
    before = sys.argv
    sys.argv = [str(shown(path)), *words]
    try:
        return names["parse_args"]()
    finally:
        sys.argv = before


def refuse_invalid_numbers(args):
    """Refuse numbers that no stage can train with. The scripts do not check them."""
    for name, number in vars(args).items():
        flag = f"--{name.replace('_', '-')} {number}"
        if type(number) is int and number < 1 and name != "seed":
            refuse(f"{flag}: expected at least 1")
        if isinstance(number, float) and not math.isfinite(number):
            refuse(f"{flag}: expected a finite number")


def plan_gpus(row, given):
    """Return (entries of CUDA_VISIBLE_DEVICES or None for all, number of GPUs)."""
    if "GPUS" in given:
        chosen = gpus.choose_gpus(given["GPUS"])
        return chosen, len(chosen)
    count = gpus.count_gpus() if row.cpu_processes else 0
    if count == 1 and not row.shares_gpus and "NPROC" not in given:
        return [], 0  # two processes show more than one, even on the CPU
    return None, count


def plan_processes(row, given, count, args):
    """Return how many processes to run; refuse impossible numbers.

    NPROC, or one for each of `count` GPUs, or the stage's default without GPUs. The
    work must divide among the processes. To achieve that, some GPUs may stay unused
    unless the user chose a number.
    """
    wanted = row.only_processes or count or row.cpu_processes
    if "NPROC" in given:
        wanted = positive("NPROC", given["NPROC"])
    elif count == 1 and "GPUS" not in given:
        wanted = row.cpu_processes  # sharing the GPU
    if wanted > count > 0 and not row.shares_gpus:
        refuse(f"{row.name} needs {wanted} GPUs, found {count}. To use CPUs: GPUS=cpu")
    is_free = "NPROC" not in given and "GPUS" not in given
    while not fits(row, wanted, args):
        if wanted == 1 or not is_free:
            work, advice = f"{args.batch_size} images a step", "--batch-size 64"
            if row.room == "transformer":
                work, advice = "its work", "--blocks 2"
            why = f"{wanted} processes cannot share {work}"
            advice = f"NPROC={row.cpu_processes} ARGS='{advice}'"
            refuse(f"{row.name}: {why}. Try: {advice}")
        wanted -= 1
    return wanted


def fits(row, ranks, args):
    """Return whether a stage can share its work among `ranks` ranks."""
    together = row.together or ranks
    if row.only_processes not in (None, ranks) or ranks % together:
        return False
    if row.room == "transformer":  # ranks may have unequal numbers of sequences
        parts = vars(args).get(row.parts, row.parts) or ranks
        return parts % ranks == 0
    evaluates = getattr(args, "checkpoint", None)
    return bool(evaluates) or args.batch_size % (ranks // together) == 0
