"""Run a stage as the Makefile asks: `python -m tools.run.launch 04_ddp`.

What to run on comes from the variables that a person gives to make: GPUS, NPROC, EPOCHS,
DATA, OUT, ARGS, BASE, RESTARTS, NNODES, NODE_RANK, MASTER_ADDR and MASTER_PORT.
"""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tools.run import data, diffs
from tools.run.stages import (
    DISTRIBUTED,
    LESSON_FROM,
    ROOT,
    STAGES,
    end_at_a_closed_pipe,
    find,
    previous,
    refuse,
    script,
)

CPU_PROCESSES = 2  # what DDP runs on where there is no GPU
MASTER_PORT = "29500"  # torchrun's own default
MINUTES = 15  # that torchrun waits for the other nodes (900 s, and a little)


def count_gpus():
    """Return how many GPUs PyTorch finds here."""
    import torch

    return torch.cuda.device_count()


def choose_gpus(text, there):
    """Return the indices that GPUS names, a list, from `0,1` or `cpu`.

    `there` is the number of GPUs of the machine. Refuses what is not there.
    """
    if text == "cpu":
        return []
    have = f"this machine has {there} GPU{'s' * (there != 1)}"
    names = ",".join(map(str, range(there)))
    say = f"take GPUS={names} or some of them" if there else "take GPUS=cpu"
    if there:
        have += f", {names}"
    if not re.fullmatch(r"\d+(,\d+)*", text):
        refuse(f"GPUS={text!r} is no list such as 0,1: {have}; {say}")
    chosen = [int(index) for index in text.split(",")]
    if len(set(chosen)) < len(chosen):
        refuse(
            f"GPUS={text} names a GPU twice: {have}; {say} (NPROC= lets ranks share)"
        )
    missing = [str(index) for index in chosen if index >= there]
    if missing:
        refuse(f"there is no GPU {' and no GPU '.join(missing)}: {have}; {say}")
    return chosen


def positive(name, text):
    """Return the integer in the make variable `name`; refuses what is below 1."""
    if not re.fullmatch(r"0*[1-9]\d*", text):
        refuse(
            f"{name}={text!r} must be a whole number of at least 1, such as {name}=2"
        )
    return int(text)


def choose_nodes(stage, given):
    """Return the number of nodes, and torchrun's words for them.

    Prints for whom a node waits, and how long.
    """
    if "NNODES" not in given:  # the others may be in the shell, on a cluster
        return 1, ["--standalone"]
    usage = "such as NNODES=2 NODE_RANK=0 MASTER_ADDR=host, NODE_RANK=1 on the second"
    if stage not in DISTRIBUTED:
        refuse(f"{stage} runs on one machine: NNODES is for ddp and ddp_inference")
    absent = [name for name in ("NODE_RANK", "MASTER_ADDR") if name not in given]
    if absent:
        refuse(f"several nodes need {' and '.join(absent)} too, {usage}")
    nodes, rank = positive("NNODES", given["NNODES"]), given["NODE_RANK"]
    if rank not in map(str, range(nodes)):
        refuse(f"NODE_RANK={rank!r} must be one of 0 to {nodes - 1}, {usage}")
    port = given.get("MASTER_PORT", MASTER_PORT)
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        refuse(
            f"MASTER_PORT={port!r} must be a port, such as MASTER_PORT={MASTER_PORT}"
        )
    if "RESTARTS" in given:
        refuse("RESTARTS works on one machine; on several, start again with --resume")
    address = f"{given['MASTER_ADDR']}:{port}"
    whom = f"the other {nodes - 1} to come to" if rank == "0" else "node 0 at"
    print(
        f"node {rank} of {nodes} waits for {whom} {address}, for about {MINUTES} minutes"
    )
    words = [f"--nnodes={nodes}", f"--node-rank={rank}"]
    words += [f"--master-addr={given['MASTER_ADDR']}", f"--master-port={port}"]
    return nodes, words


def set_aside(command):
    """Keep a run that may restart from going on where an earlier one stopped."""
    last = len(command) - 1 - command[::-1].index("--out")
    out = Path(command[last + 1])
    if (out / "state.pth").exists():
        (out / "state.pth").replace(out / "state.before.pth")


def check_flags(stage, flags, processes):
    """Refuse what a stage would refuse after it has started, before it starts.

    `processes` is their number on all nodes. Returns the flags as the script reads them.
    """
    known = re.findall(r'add_argument\("(--[a-z-]+)"', script(stage).read_text())
    for word in flags:
        name = word.partition("=")[0]
        if name.startswith("--") and name not in [*known, "--help"]:
            refuse(f"{stage} has no flag {name}: it has {', '.join(known)}")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.error = lambda message: refuse(f"{message} (in ARGS or EPOCHS)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    args, _ = parser.parse_known_args(flags)
    if args.epochs < 1:
        refuse(f"--epochs {args.epochs}: a run has at least one epoch, EPOCHS=1")
    for name in "batch_size", "hidden", "lr":
        if not getattr(args, name) > 0:
            flag = name.replace("_", "-")
            refuse(f"--{flag} {getattr(args, name)} must be more than 0")
    if args.checkpoint and not args.checkpoint.is_file():
        refuse(f"there is no checkpoint {args.checkpoint}: a stage saves one in runs/")
    if args.batch_size % processes and not args.checkpoint:
        low = max(args.batch_size // processes, 1) * processes
        refuse(
            f"{processes} processes cannot share a batch of {args.batch_size} images: "
            f"take ARGS='--batch-size {low}' or {low + processes}"
        )
    try:
        data.check(args.data)
    except (ValueError, OSError) as error:
        refuse(f"no MNIST in {args.data} ({error}): 'make data', or DATA=data/sample")
    parent = args.out
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        refuse(f"cannot write to {args.out}: name another folder, OUT=DIR")
    return args


def plan(stage, settings, there=None):
    """Return what to run: the environment to add, and the command, a list of words.

    `settings` maps the names of make variables to texts; what is missing or empty was
    not given. `there` is the number of GPUs, counted where None.
    """
    given = {name: text for name, text in settings.items() if text}
    environment, gpus, processes = {}, None, 1
    # The tutorial's kernels are tiny: more threads gain little on an idle machine, and
    # on a busy one they wait for each other most of the time.
    if "OMP_NUM_THREADS" not in settings:
        environment["OMP_NUM_THREADS"] = "1"
    if "GPUS" in given:
        if there is None and given["GPUS"] != "cpu":
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # GPUS says which, not this
            there = count_gpus()
        gpus = choose_gpus(given["GPUS"], there or 0)
        if stage == "02_single_gpu":
            gpus = gpus[:1]
        if stage != "01_cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    nproc = positive("NPROC", given["NPROC"]) if "NPROC" in given else None
    if stage in DISTRIBUTED:
        if gpus is None and there is None:
            there = count_gpus()
        on = len(gpus) if gpus is not None else there
        processes = nproc or on or CPU_PROCESSES
    nodes, torchrun = choose_nodes(stage, given)
    if "RESTARTS" in given:
        if stage not in DISTRIBUTED:
            refuse(f"{stage} is not started by torchrun, which makes the RESTARTS")
        torchrun.append(f"--max-restarts={positive('RESTARTS', given['RESTARTS'])}")
        # Else restarted ranks may read addresses of the dead ones, and hang:
        # https://github.com/pytorch/pytorch/issues/135712
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    root = Path(given["DATA"]) if "DATA" in given else data.choose()
    flags = ["--data", str(data.shown(root))]
    flags += ["--out", given.get("OUT", f"runs/{stage}")]
    if "EPOCHS" in given:
        flags += ["--epochs", str(positive("EPOCHS", given["EPOCHS"]))]
    try:
        flags += shlex.split(given.get("ARGS", ""))
    except ValueError as error:
        refuse(f"ARGS={given['ARGS']!r} cannot be split into words: {error}")
    args = check_flags(stage, flags, processes * nodes)
    state = args.out / "state.pth"
    reads = nodes == 1 or given["NODE_RANK"] == "0"  # rank 0 alone, for all
    if args.resume and reads and not state.exists():
        print(f"there is no {state} to resume from: from epoch 1, then")
    if "RESTARTS" in given and "--resume" not in flags:
        flags.append("--resume")
    program = Path(sys.executable).parent
    command = [data.shown(program / "python")]
    if stage in DISTRIBUTED:
        command = [data.shown(program / "torchrun"), *torchrun]
        command += [f"--nproc-per-node={processes}"]
    command += [data.shown(script(stage)), *flags]
    return environment, [str(word) for word in command]


def show(environment, command):
    """Print a command as a person would type it, with the environment that it adds."""
    words = [f"{name}={value}" for name, value in environment.items()]
    print(f"$ {' '.join(words + [shlex.quote(word) for word in command])}", flush=True)


def run(stage, settings):
    """Print the command of a stage, run it, and return its exit status."""
    environment, command = plan(stage, settings)
    if settings.get("RESTARTS") and "--resume" not in settings.get("ARGS", ""):
        set_aside(command)
    show(environment, command)
    # Unbuffered, so that a pipe gets every line when it is printed. In a session of its
    # own, so that Ctrl-C reaches this program alone, which then ends all of them.
    added = {**environment, "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(
        command, env={**os.environ, **added}, start_new_session=True
    )
    try:
        return child.wait()
    except KeyboardInterrupt:
        end(child.pid)
        print(f"\n{stage}: stopped", file=sys.stderr)
        return 128 + signal.SIGINT


def end(pid):
    """Kill a process, then all that it started, children of children too.

    The parent first, or torchrun would report the deaths of its workers at length. What a
    stage saves is whole at any moment.
    """
    try:
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass
    psutil.wait_procs(family, timeout=5)


def interrupt(*_):
    """Let SIGTERM and SIGHUP end a run as Ctrl-C does."""
    raise KeyboardInterrupt


def main():
    end_at_a_closed_pipe()
    os.chdir(ROOT)
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGHUP, interrupt)
    if sys.argv[1:] == ["all"]:
        top = Path(os.environ.get("OUT") or "runs")
        for stage in STAGES:
            status = run(stage, {**os.environ, "OUT": str(top / stage)})
            if status:
                sys.exit(f"{stage} failed with exit status {status}")
            print()
        return
    stage = find(sys.argv[1])
    base = os.environ.get("BASE")
    base = find(base) if base else previous(stage)
    status = run(stage, os.environ)
    if status:
        sys.exit(status if status > 0 else 128 - status)
    if base:
        diffs.show(base, stage, colours=sys.stdout.isatty())
    lesson = LESSON_FROM.get(stage)
    if lesson and base != lesson:
        count = diffs.changed_lines(lesson, stage)
        print(f"\nThe lesson is the diff from {lesson}, of {count} changed lines: "
              f"make diff A={lesson} B={stage}")  # fmt: skip


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
