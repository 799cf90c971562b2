"""Run a stage as the Makefile asks: `python -m tools.run.launch 04_ddp`.

What to run on comes from the variables that a person gives to make: GPUS, NPROC, EPOCHS,
DATA, OUT, ARGS, BASE, RESTARTS, NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT and WAIT.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import warnings
from contextlib import contextmanager, nullcontext, suppress
from importlib.metadata import version
from pathlib import Path

import psutil

from tools.run import data, diffs, meeting
from tools.run.stages import (
    BEYOND,
    BY_TORCHRUN,
    CPU_PROCESSES,
    LESSON_FROM,
    ROOT,
    STAGES,
    end_at_a_closed_pipe,
    find,
    previous,
    refuse,
    refuse_unwritable,
    script,
)

MASTER_PORT = "29500"  # torchrun's own default
WAIT = "900"  # seconds that nodes wait for each other


def count_gpus():
    """Return how many GPUs the stages find, by CUDA: NVML alone may count dead ones."""
    import torch  # here, so that a refusal comes at once

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the doctor says what is wrong
        return torch.cuda.device_count() if torch.cuda.is_available() else 0


def choose_gpus(text, there):
    """Return the GPUs that GPUS names, `0,1` or `cpu`: texts for CUDA_VISIBLE_DEVICES.

    `there` is their number; where None they are counted, and those that the shell's own
    CUDA_VISIBLE_DEVICES lists are 0, 1 and so on. Refuses what is not there.
    """
    if text == "cpu":
        return []
    listed = os.environ.get("CUDA_VISIBLE_DEVICES") if there is None else None
    there = count_gpus() if there is None else there
    if not there:
        refuse(f"GPUS={text}: CUDA finds no GPU (why? make doctor); take GPUS=cpu")
    indices = ",".join(map(str, range(there)))
    names = dict(zip(indices.split(","), (listed or indices).split(","), strict=False))
    chosen = text.split(",")
    if len(set(chosen)) < len(chosen) or not names.keys() >= set(chosen):
        have = f"CUDA_VISIBLE_DEVICES={listed} shows" if listed else "this machine has"
        have += f" {there} GPU{'s' * (there != 1)}, {indices}"
        refuse(f"GPUS={text}: {have}; take GPUS={indices} or some of them, each once")
    return [names[index].strip() for index in chosen]


def unfit(stage, ranks, batch):
    """Return why so many ranks cannot run a stage, and what to take instead, or None."""
    if stage == "09_pipeline":
        return None if ranks == 2 else ("a pipeline of two halves", "NPROC=2")
    if stage == "10_hybrid" and ranks % 2:
        return "tensor parallelism in pairs", f"NPROC={ranks + 1}"
    # with tensor parallelism a pair, or all, have the same images
    shares = {"08_tensor_parallel": 1, "10_hybrid": ranks // 2}.get(stage, ranks)
    if batch % shares == 0:
        return None
    low = max(batch // shares, 1) * shares
    why = f"{ranks} processes cannot share a batch of {batch} images"
    return why, f"ARGS='--batch-size {low}' or {low + shares}"


def choose_processes(stage, given, gpus, there, batch, nodes):
    """Return how many ranks run on this node: NPROC, one for each GPU, or CPU_PROCESSES.

    `gpus` are those that GPUS names, or None; `there` is the number of all, counted where
    None. Ranks share `batch` images evenly, on all nodes together: refuses an NPROC or
    GPUS that cannot. Where neither is given, takes as many as can, or two on a single
    GPU, and prints a line that says so.
    """
    on = len(gpus) if gpus is not None else count_gpus() if there is None else there
    most = on or CPU_PROCESSES[stage]
    if "NPROC" in given:
        most = positive("NPROC", given["NPROC"])
        if stage in BEYOND.values() and most > on > 0:
            refuse(f"NPROC={most}: each process needs a GPU of its own; here are {on}")
    elif gpus is None and most == nodes == 1:
        most = CPU_PROCESSES[stage]
        print("1 GPU: 2 processes share it, over gloo; GPUS=0 takes one, alone")
    wrong = unfit(stage, most * nodes, batch)
    if not wrong:
        return most
    why, advice = wrong
    can = [n for n in range(1, most) if not unfit(stage, n * nodes, batch)]
    if "NPROC" in given or gpus is not None or not can or can[-1] * nodes == 1:
        refuse(f"{why}: take {advice}")
    takes_all = f"; {advice} takes all" if "ARGS" in advice else ""
    print(f"{why}: {can[-1] * nodes} run{takes_all}")
    return can[-1]


def positive(name, text):
    """Return the integer in the make variable `name`; refuses what is below 1."""
    if not re.fullmatch(r"0*[1-9]\d*", text):
        refuse(f"{name}={text!r} must be a whole number of at least 1: {name}=2, say")
    return int(text)


def choose_nodes(stage, given):
    """Return the number of nodes, and torchrun's words for them."""
    if "NNODES" not in given:  # the others may be in the shell, on a cluster
        return 1, ["--standalone"]
    usage = "such as NNODES=2 NODE_RANK=0 MASTER_ADDR=host, NODE_RANK=1 on the second"
    if stage not in BY_TORCHRUN:
        refuse(
            f"{stage} runs on one machine: NNODES is for what torchrun starts, such as ddp"
        )
    absent = [name for name in ("NODE_RANK", "MASTER_ADDR") if name not in given]
    if absent:
        refuse(f"several nodes need {' and '.join(absent)} too, {usage}")
    nodes, rank = positive("NNODES", given["NNODES"]), given["NODE_RANK"]
    if rank not in map(str, range(nodes)):
        refuse(f"NODE_RANK={rank!r} must be one of 0 to {nodes - 1}, {usage}")
    port = given.get("MASTER_PORT", MASTER_PORT)
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        refuse(f"MASTER_PORT={port!r} must be a port, such as {MASTER_PORT}")
    if "RESTARTS" in given:
        refuse("RESTARTS works on one machine; on several, start again with --resume")
    # torchrun waits twice as long where it connects
    timeout = max(positive("WAIT", given.get("WAIT", WAIT)) // 2, 1)
    return nodes, [
        f"--nnodes={nodes}", f"--node-rank={rank}", f"--rdzv-conf=timeout={timeout}",
        f"--master-addr={given['MASTER_ADDR']}", f"--master-port={port}",
    ]  # fmt: skip


def read_flags(stage, flags):
    """Return the flags as the script reads them; refuses those that it does not have."""
    parser = argparse.ArgumentParser(f"{stage}/mnist.py", allow_abbrev=False)
    parser.error = lambda message: refuse(f"{message} (in ARGS or EPOCHS)")
    pattern = r'^ +(parser\.add_argument\("(--[a-z-]+)".*\))$'
    declared = re.findall(pattern, script(stage).read_text(), re.MULTILINE)
    for line, _ in declared:  # the script's own lines; its imports take seconds
        exec(line, {"parser": parser, "Path": Path, "STAGE": stage})  # noqa: S102
    args, unknown = parser.parse_known_args(flags)
    if unknown:
        name, names = unknown[0].partition("=")[0], [name for _, name in declared]
        refuse(f"{stage} has no flag {name}: it has {', '.join(names)}")
    return args


def check_flags(stage, flags):
    """Refuse what a stage would refuse after it has started, before it starts.

    Returns the flags as the script reads them.
    """
    args = read_flags(stage, flags)
    checkpoint = getattr(args, "checkpoint", None)
    if args.epochs < 1:
        refuse(f"--epochs {args.epochs}: a run has at least one epoch, EPOCHS=1")
    for name in "batch_size", "hidden", "lr", "micro_batches":
        if not getattr(args, name, 1) > 0:
            flag = name.replace("_", "-")
            refuse(f"--{flag} {getattr(args, name)} must be more than 0")
    if checkpoint and not checkpoint.is_file():
        refuse(f"there is no checkpoint {checkpoint}: a stage saves one in runs/")
    try:
        data.check(args.data)
    except (ValueError, OSError) as error:
        refuse(f"no MNIST in {args.data} ({error}): 'make data', or DATA=data/sample")
    refuse_unwritable(args.out, "name another folder, OUT=DIR")
    return args


def shown(stage):
    """Return a stage's script as it stands in a command."""
    return str(data.shown(script(stage)))


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
        gpus = choose_gpus(given["GPUS"], there)
        if stage == "02_single_gpu":
            gpus = gpus[:1]
        if stage != "01_cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    elif stage in BEYOND.values() and "NPROC" not in given:
        there = count_gpus() if there is None else there
        if there == 1 and "NNODES" not in given:
            print("1 GPU: each process needs one of its own, so they run on the CPU")
            gpus, environment["CUDA_VISIBLE_DEVICES"] = [], ""
    root = Path(given["DATA"]) if "DATA" in given else data.choose()
    flags = ["--data", str(data.shown(root))]
    flags += ["--out", given.get("OUT", f"runs/{stage}")]
    if "EPOCHS" in given:
        flags += ["--epochs", str(positive("EPOCHS", given["EPOCHS"]))]
    try:
        flags += shlex.split(given.get("ARGS", ""))
    except ValueError as error:
        refuse(f"ARGS={given['ARGS']!r} cannot be split into words: {error}")
    args = check_flags(stage, flags)
    nodes, torchrun = choose_nodes(stage, given)
    if stage in BY_TORCHRUN:
        batch = 0 if getattr(args, "checkpoint", None) else args.batch_size
        processes = choose_processes(stage, given, gpus, there, batch, nodes)
    state = args.out / "state.pth"
    reads = nodes == 1 or given["NODE_RANK"] == "0"  # rank 0 alone, for all
    if args.resume and reads and not state.exists():
        print(f"there is no {state} to resume from: from epoch 1, then")
    if "RESTARTS" in given:
        if stage not in BY_TORCHRUN:
            refuse(f"{stage} is not started by torchrun, which makes the RESTARTS")
        torchrun.append(f"--max-restarts={positive('RESTARTS', given['RESTARTS'])}")
        # Else restarted ranks may read addresses of the dead ones, and hang:
        # https://github.com/pytorch/pytorch/issues/135712
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        flags += ["--resume"] * (not args.resume)
    program = Path(sys.executable).parent
    command = [data.shown(program / "python")]
    if stage in BY_TORCHRUN:
        command = [data.shown(program / "torchrun"), *torchrun]
        command += [f"--nproc-per-node={processes}"]
    command += [shown(stage), *flags]
    return environment, [str(word) for word in command]


def show(environment, command):
    """Print a command as a person would type it, with the environment that it adds."""
    words = [f"{name}={value}" for name, value in environment.items()]
    print(f"$ {' '.join(words + [shlex.quote(word) for word in command])}", flush=True)


@contextmanager
def sole_use(folder):
    """Refuse a second run into a folder, until the first and what it started have ended.

    Yields the number of the open file that stands for that.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refuse(f"another run writes to {folder}: name another folder, OUT=DIR")
        except OSError:  # some network disks have no locks
            pass
        yield lock.fileno()


def alike(stage, args, environment, command):
    """Return what must be the same on all nodes of a run: texts by name."""

    def digest(*paths):
        whole = b"".join(path.read_bytes() for path in paths)
        return f"SHA-256 {hashlib.sha256(whole).hexdigest()[:12]}"

    processes = command[command.index(shown(stage)) - 1]
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    gpus = count_gpus() if visible is None else len(visible.split(",")) * bool(visible)
    backend = "nccl" if gpus >= int(processes.rpartition("=")[2]) else "gloo"
    raw = args.data / "MNIST" / "raw"
    same = {"the number of nodes": command[1], "the number of processes": processes}
    same |= {"the stage": stage, "its script": digest(script(stage))}
    same |= {"the data": digest(*(raw / name for name in data.FILES))}
    same |= {"PyTorch": version("torch").partition("+")[0], "the backend": backend}
    for name, value in vars(args).items():
        if name not in ("data", "out"):
            value = digest(value) if isinstance(value, Path) else value
            same[f"--{name.replace('_', '-')}"] = str(value)
    return same


def keep_flags(args):
    """Write a run's flags beside its metrics, whole at any moment, for `compare`."""
    flags = {name: str(value) for name, value in vars(args).items()}
    path = args.out / "flags.json"
    with suppress(OSError):
        path.with_suffix(".tmp").write_text(json.dumps(flags))
        path.with_suffix(".tmp").replace(path)


def run(stage, settings):
    """Print the command of a stage, run it, and return its exit status."""
    environment, command = plan(stage, settings)
    args = read_flags(stage, command[command.index(shown(stage)) + 1 :])
    nodes = int(settings.get("NNODES") or 1)
    rank = int(settings["NODE_RANK"]) if nodes > 1 else 0
    # Of several nodes the first alone writes; the others may see the same disk.
    with nullcontext() if rank else sole_use(args.out) as lock:
        if nodes > 1:
            port = int(settings.get("MASTER_PORT") or MASTER_PORT)
            wait = int(settings.get("WAIT") or WAIT)
            same = alike(stage, args, environment, command)
            head = settings["MASTER_ADDR"]
            environment |= meeting.meet(rank, nodes, head, port, wait, same)
        state, anew = args.out / "state.pth", "--resume" not in settings.get("ARGS", "")
        # Else it would go on where an earlier run stopped.
        if settings.get("RESTARTS") and anew and state.exists():
            state.replace(state.with_name("state.before.pth"))
        show(environment, command)
        if rank == 0 and not getattr(args, "checkpoint", None):
            keep_flags(args)
        return follow(stage, environment, command, lock)


def follow(stage, environment, command, lock):
    """Run a command to its end, or to Ctrl-C, and return its exit status.

    It holds the open file of the number `lock`, if any, until it ends.
    """
    # Unbuffered, so that a pipe gets every line when it is printed. In a session of its
    # own, so that Ctrl-C reaches this program alone, which then ends all of them.
    added = {**environment, "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(
        command,
        env={**os.environ, **added},
        start_new_session=True,
        pass_fds=[lock] if lock else [],
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
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=5)


def main():
    end_at_a_closed_pipe()
    os.chdir(ROOT)
    for other in signal.SIGTERM, signal.SIGHUP:  # end a run as Ctrl-C does
        signal.signal(other, signal.default_int_handler)
    if sys.argv[1] in ("all", "beyond"):
        top = Path(os.environ.get("OUT") or "runs")
        for stage in STAGES if sys.argv[1] == "all" else BEYOND.values():
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
        diffs.show(base, stage)
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
