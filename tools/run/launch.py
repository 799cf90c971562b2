"""Run a stage as the Makefile asks: `python -m tools.run.launch 04_ddp`.

What to run on comes from the variables given to make: GPUS, NPROC, EPOCHS, DATA,
 OUT, ARGS, BASE, RESTARTS, NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT and WAIT.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
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
    BY_NAME,
    BY_TORCHRUN,
    CPU_PROCESSES,
    RESUMES,
    ROOT,
    STAGES,
    end_at_a_closed_pipe,
    find,
    previous,
    refuse,
    refuse_old,
    refuse_unwritable,
    script,
)
from tools.run.supervise import adopt_orphans, end_children, end_with_parent

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
    """Return why so many ranks cannot run a stage, and what can, or None."""
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
    """Return how many ranks run on this node, and how many GPUs it has for them.

    As many ranks as NPROC says, or one for each GPU, or CPU_PROCESSES. `gpus` are those
    that GPUS names, or None; `there` is the number of all, counted where None. The
    ranks of all nodes together need equal shares of `batch` images: refuses an NPROC or
    GPUS with which they have none. Where neither is given, takes as many as can, or two
    on a single GPU, and prints a line that says so.
    """
    if gpus is not None:
        on = len(gpus)
    else:
        on = count_gpus() if there is None else there
    most = on or CPU_PROCESSES[stage]
    if "NPROC" in given:
        most = positive("NPROC", given["NPROC"])
        if most > on > 0 and not BY_NAME[stage].shares_gpus:
            refuse(f"NPROC={most}: each process needs a GPU of its own; here are {on}")
    elif gpus is None and most == nodes == 1:
        most = CPU_PROCESSES[stage]
        print("1 GPU: 2 processes share it, over gloo; GPUS=0 takes one, alone")
    wrong = unfit(stage, most * nodes, batch)
    if not wrong:
        return most, on
    why, advice = wrong
    can = [n for n in range(1, most) if not unfit(stage, n * nodes, batch)]
    if "NPROC" in given or gpus is not None or not can or can[-1] * nodes == 1:
        refuse(f"{why}: take {advice}")
    takes_all = f"; {advice} takes all" if "ARGS" in advice else ""
    print(f"{why}: {can[-1] * nodes} run{takes_all}")
    return can[-1], on


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
            f"{stage} runs on one machine: NNODES is for what torchrun starts, as ddp"
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
        refuse(
            "RESTARTS works on one machine; on several, start again by ARGS=--resume"
        )
    # torchrun waits twice as long where it connects
    timeout = max(positive("WAIT", given.get("WAIT", WAIT)) // 2, 1)
    return nodes, [
        f"--nnodes={nodes}",
        f"--node-rank={rank}",
        f"--rdzv-conf=timeout={timeout}",
        f"--master-addr={given['MASTER_ADDR']}",
        f"--master-port={port}",
    ]


def read_flags(stage, flags, backend="gloo"):
    """Return the flags as the script reads them; refuses those that it does not have.

    `backend` is the script's default on this machine.
    """
    parser = argparse.ArgumentParser(f"{stage}/mnist.py", allow_abbrev=False)
    parser.error = lambda message: refuse(f"{message} (in ARGS or EPOCHS)")
    pattern = r'^ +(parser\.add_argument\("(--[a-z-]+)".*\))$'
    declared = re.findall(pattern, script(stage).read_text(), re.MULTILINE)
    names = {"parser": parser, "Path": Path, "STAGE": stage, "backend": backend}
    for line, _ in declared:  # the script's own lines; its imports take seconds
        exec(line, names)  # noqa: S102
    args, unknown = parser.parse_known_args(flags)
    if unknown:
        name = unknown[0].partition("=")[0]
        has = ", ".join(flag for _, flag in declared)
        advice = (
            "; `make resume` runs the stage that does" if name == "--resume" else ""
        )
        refuse(f"{stage} has no flag {name}: it has {has}{advice}")
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
    refuse_old(stage)
    given = {name: text for name, text in settings.items() if text}
    environment = {}
    # The tutorial's kernels are tiny: more threads gain little on an idle machine, and
    # on a busy one they wait for each other most of the time.
    if "OMP_NUM_THREADS" not in settings:
        environment["OMP_NUM_THREADS"] = "1"
    gpus = plan_gpus(stage, given, environment, there)
    flags = plan_flags(stage, given)
    args = check_flags(stage, flags)
    nodes, torchrun = choose_nodes(stage, given)
    check_state(stage, args, given)
    if "RESTARTS" in given:
        torchrun.append(f"--max-restarts={positive('RESTARTS', given['RESTARTS'])}")
        # Else restarted ranks may read addresses of the dead ones, and hang:
        # https://github.com/pytorch/pytorch/issues/135712
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        if not args.resume:
            flags.append("--resume")
    program = Path(sys.executable).parent
    if stage not in BY_TORCHRUN:
        command = [data.shown(program / "python"), shown(stage), *flags]
        return environment, [str(word) for word in command]
    batch = 0 if getattr(args, "checkpoint", None) else args.batch_size
    processes, on = choose_processes(stage, given, gpus, there, batch, nodes)
    if processes > on > 0:
        flags = share_gpus(stage, flags, processes, on)
    command = [data.shown(program / "torchrun"), *torchrun]
    command += [f"--nproc-per-node={processes}", shown(stage), *flags]
    return environment, [str(word) for word in command]


def plan_gpus(stage, given, environment, there):
    """Return the GPUs that a stage may use, or None for all; add to `environment`."""
    if "GPUS" in given:
        gpus = choose_gpus(given["GPUS"], there)
        if stage == "02_single_gpu":
            gpus = gpus[:1]
        if stage != "01_cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        return gpus
    alone = stage not in BY_TORCHRUN or BY_NAME[stage].shares_gpus
    if alone or "NPROC" in given or "NNODES" in given:
        return None
    there = count_gpus() if there is None else there
    if there != 1:
        return None
    print("1 GPU: each process needs one of its own, so they run on the CPU")
    environment["CUDA_VISIBLE_DEVICES"] = ""
    return []


def plan_flags(stage, given):
    """Return the script's flags that make's variables ask for, a list of words."""
    root = Path(given["DATA"]) if "DATA" in given else data.choose()
    flags = ["--data", str(data.shown(root))]
    flags += ["--out", given.get("OUT", f"runs/{stage}")]
    if "EPOCHS" in given:
        flags += ["--epochs", str(positive("EPOCHS", given["EPOCHS"]))]
    try:
        flags += shlex.split(given.get("ARGS", ""))
    except ValueError as error:
        refuse(f"ARGS={given['ARGS']!r} cannot be split into words: {error}")
    return flags


def share_gpus(stage, flags, processes, on):
    """Return the flags with which more processes than GPUs run: NCCL refuses these."""
    asked = read_flags(stage, flags, backend=None).backend
    if asked is None:
        return [*flags, "--backend", "gloo"]
    if asked != "gloo":
        why = f"{processes} processes share {on} GPU{'s' * (on > 1)}"
        refuse(f"--backend {asked}: {why}, which gloo alone can do; leave the flag out")
    return flags


def check_state(stage, args, given):
    """Refuse RESTARTS where no state is saved; say where --resume finds none."""
    if stage not in RESUMES:
        if "RESTARTS" in given:
            refuse(f"{stage} does not save its state: `make resume RESTARTS=3` does")
        return
    # Rank 0 alone looks for it, on the first node.
    first = "NNODES" not in given or given["NODE_RANK"] == "0"
    state = args.out / BY_NAME[stage].state
    if args.resume and first and not has_state(state):
        print(f"there is no {state} to resume from: from epoch 1, then")


def has_state(state):
    """Return whether a run can go on from a file or a folder of checkpoints."""
    return state.is_file() or any(state.glob("*/.metadata"))


def set_aside(state):
    """Rename an earlier run's state: a restarted run would go on from it."""
    before = state.with_name(f"{state.stem}.before{state.suffix}")
    if before.is_dir():
        shutil.rmtree(before)
    state.replace(before)


def show(environment, command):
    """Print a command as a person would type it, with the environment that it adds."""
    words = [f"{name}={value}" for name, value in environment.items()]
    print(f"$ {' '.join(words + [shlex.quote(word) for word in command])}", flush=True)


@contextmanager
def sole_use(folder):
    """Refuse a second run into a folder until the first, with all its processes, ends.

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


def alike(stage, args, command):
    """Return what must be the same on all nodes of a run: texts by name."""

    def digest(*paths):
        whole = b"".join(path.read_bytes() for path in paths)
        return f"SHA-256 {hashlib.sha256(whole).hexdigest()[:12]}"

    processes = command[command.index(shown(stage)) - 1]
    raw = args.data / "MNIST" / "raw"
    same = {"the number of nodes": command[1], "the number of processes": processes}
    same |= {"the stage": stage, "its script": digest(script(stage))}
    same |= {"the data": digest(*(raw / name for name in data.FILES))}
    same |= {"PyTorch": version("torch").partition("+")[0]}
    for name, value in vars(args).items():
        if name not in ("data", "out"):
            value = digest(value) if isinstance(value, Path) else value
            same[f"--{name.replace('_', '-')}"] = str(value)
    return same


def default_backend(stage, environment):
    """Return what a script takes for --backend where nobody names one."""
    if stage not in BY_TORCHRUN:
        return None
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return "nccl" if count_gpus() else "gloo"
    return "nccl" if visible else "gloo"


def keep_flags(args, processes):
    """Write a run's flags beside its metrics, whole at any moment, for `compare`.

    With them the number of processes on all nodes.
    """
    flags = {name: str(value) for name, value in vars(args).items()}
    flags["processes"] = str(processes)
    path = args.out / "flags.json"
    with suppress(OSError):
        path.with_suffix(".tmp").write_text(json.dumps(flags))
        path.with_suffix(".tmp").replace(path)


def count_processes(command, nodes):
    """Return how many processes a command starts, on all nodes together."""
    for word in command:
        if word.startswith("--nproc-per-node="):
            return nodes * int(word.partition("=")[2])
    return 1


def run(stage, settings):
    """Print the command of a stage, run it, and return its exit status."""
    environment, command = plan(stage, settings)
    words = command[command.index(shown(stage)) + 1 :]
    args = read_flags(stage, words, default_backend(stage, environment))
    nodes = int(settings.get("NNODES") or 1)
    rank = int(settings["NODE_RANK"]) if nodes > 1 else 0
    # Of several nodes the first alone writes; the others may see the same disk.
    with nullcontext() if rank else sole_use(args.out) as lock:
        if nodes > 1:
            port = int(settings.get("MASTER_PORT") or MASTER_PORT)
            wait = int(settings.get("WAIT") or WAIT)
            same = alike(stage, args, command)
            head = settings["MASTER_ADDR"]
            environment |= meeting.meet(rank, nodes, head, port, wait, same)
        # With RESTARTS, --resume may be ours; what counts is what the person asked for.
        asked = "--resume" in shlex.split(settings.get("ARGS") or "")
        if settings.get("RESTARTS") and not asked:
            state = args.out / BY_NAME[stage].state
            if state.exists():
                set_aside(state)
        show(environment, command)
        if rank == 0 and not getattr(args, "checkpoint", None):
            keep_flags(args, count_processes(command, nodes))
        return follow(stage, environment, command, lock)


def follow(stage, environment, command, lock):
    """Run a command to its end, or to Ctrl-C, and return its exit status.

    It holds the open file of the number `lock`, if any, until it ends. All that it has
    started ends with it, and with this process, however they end.
    """
    # Unbuffered, so that a pipe gets every line when it is printed.
    added = {**environment, "PYTHONUNBUFFERED": "1"}
    adopt_orphans()
    link, ours = os.pipe()
    supervisor = [sys.executable, "-m", "tools.run.supervise", str(link)]
    # In a session of its own, so that Ctrl-C reaches this program alone, which then
    # closes the pipe: the supervisor ends all of them.
    child = subprocess.Popen(
        [*supervisor, *command],
        env={**os.environ, **added},
        start_new_session=True,
        pass_fds=[link, lock] if lock else [link],
    )
    os.close(link)
    try:
        status = child.wait()
    except KeyboardInterrupt:
        os.close(ours)
        child.wait()
        print(f"\n{stage}: stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    os.close(ours)
    if status < 0:  # the supervisor itself was killed
        end_children()
    return status


def end(pid):
    """Kill a process, then all that it started, children of children too.

    The parent first, or torchrun would report the deaths of its workers at length.
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
    if "MAKELEVEL" in os.environ:  # make may be killed without a chance to end this
        end_with_parent()
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


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
