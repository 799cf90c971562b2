"""Run a stage as the Makefile asks: `python -m tools.run.launch ddp`.

`all` and `beyond` run several. What to run them on comes from the variables given to
make: GPUS, NPROC, EPOCHS, DATA, OUT, ARGS, BASE, RESTARTS, NNODES, NODE_RANK,
MASTER_ADDR, MASTER_PORT and WAIT.
"""

import fcntl
import hashlib
import json
import os
import shutil
import signal
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from tools.run import data, diffs
from tools.run.plan import make_plan
from tools.run.rendezvous import rendezvous
from tools.run.stages import (
    BEYOND,
    ROOT,
    TARGETS,
    end_at_a_closed_pipe,
    find_stage,
    previous,
    refuse,
    refuse_unwritable,
    script,
)
from tools.run.supervise import end_with_parent, print_command, run_command

SEVERAL = {"all": TARGETS, "beyond": BEYOND}


def main():
    end_at_a_closed_pipe()
    end_with_make()
    os.chdir(ROOT)
    target = sys.argv[1]
    settings = dict(os.environ)
    stages = SEVERAL[target].values() if target in SEVERAL else [find_stage(target)]
    if not settings.get("DATA"):
        refuse_before_download(stages, settings)
        settings["DATA"] = str(data.choose())
    if target in SEVERAL:
        run_several(stages, settings)
    else:
        run_one(*stages, settings)


def refuse_before_download(stages, settings):
    """End the program now if a variable cannot work, before MNIST is downloaded."""
    if settings.get("BASE"):
        find_stage(settings["BASE"])
    for stage in stages:
        make_plan(stage, {**settings, "DATA": str(data.SAMPLE)})


def run_one(stage, settings):
    """Run a stage, then show the diff that leads to it."""
    base = settings.get("BASE")
    base = find_stage(base) if base else previous(stage)
    plan = make_plan(stage, settings)
    check([plan])
    status = run(plan)
    if status:
        sys.exit(status)
    if base:
        diffs.show(base, stage)


def run_several(stages, settings):
    """Run stages in turn, each with a folder of its own in OUT."""
    top = Path(settings.get("OUT") or "runs")
    plans = [make_plan(name, {**settings, "OUT": str(top / name)}) for name in stages]
    check(plans)
    for plan in plans:
        status = run(plan)
        if status:
            sys.exit(f"{plan.stage} failed with exit status {status}")
        print()


def end_with_make():
    """Have this program end on SIGTERM and SIGHUP as on Ctrl-C, and when make ends."""
    for other in signal.SIGTERM, signal.SIGHUP:
        signal.signal(other, signal.default_int_handler)
    if "MAKELEVEL" in os.environ:  # make may be killed without a chance to end this
        end_with_parent()


def check(plans):
    """Refuse plans that cannot work with the files that are there."""
    for root in dict.fromkeys(plan.args.data for plan in plans):
        data.verify(root)
    for plan in plans:
        if plan.checkpoint and not plan.checkpoint.is_file():
            advice = "a stage saves one in runs/"
            refuse(f"there is no checkpoint {plan.checkpoint}: {advice}")
        refuse_unwritable(plan.args.out, "name another folder, OUT=DIR")


def run(plan):
    """Run a plan, and return its exit status."""
    is_first = plan.nodes.rank == 0
    # Only the first node writes. The others may see the same disk.
    with run_lock(plan.args.out) if is_first else nullcontext() as lock:
        if plan.nodes.count > 1:
            plan = meet(plan)
        if is_first:
            prepare_folder(plan)
        show(plan)
        return run_command(plan.stage, plan.environment, plan.command, lock)


def show(plan):
    """Print what was chosen for a plan, and its command."""
    for note in plan.notes:
        print(note)
    print_command(plan.environment, plan.command)


@contextmanager
def run_lock(folder):
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


def meet(plan):
    """Wait until all nodes of a run are there; return the plan with what gloo needs.

    Ends the program with one line if a node is missing or would run something else.
    """
    nodes = plan.nodes
    place = nodes.rank, nodes.count, nodes.address, nodes.port, nodes.wait
    found = rendezvous(*place, fingerprint(plan))
    return replace(plan, environment={**plan.environment, **found})


def digest(*paths):
    """Return the beginning of the checksum of files, one after the other."""
    whole = b"".join(path.read_bytes() for path in paths)
    return f"SHA-256 {hashlib.sha256(whole).hexdigest()[:12]}"


def fingerprint(plan):
    """Return what must be the same on all nodes of a run: texts by name."""
    raw = plan.args.data / "MNIST" / "raw"
    found = {
        "the number of nodes": f"--nnodes={plan.nodes.count}",
        "the number of processes": f"--nproc-per-node={plan.processes}",
        "the stage": plan.stage,
        "its script": digest(script(plan.stage)),
        "the data": digest(*(raw / name for name in data.FILES)),
        "PyTorch": version("torch").partition("+")[0],
    }
    for name, value in vars(plan.args).items():
        if name not in ("data", "out"):
            value = digest(value) if isinstance(value, Path) else value
            found[f"--{name.replace('_', '-')}"] = str(value)
    return found


def prepare_folder(plan):
    """Make a plan's folder ready: no state of an earlier run, and flags.json.

    `make compare` reads the flags.
    """
    state = plan.state
    if plan.is_new:
        set_aside(state)
    elif state and plan.args.resume and not is_complete(state):
        print(f"there is no {state} to resume from: starting at epoch 1")
    if plan.checkpoint:
        return
    flags = {name: str(value) for name, value in vars(plan.args).items()}
    (plan.args.out / "flags.json").write_text(json.dumps(flags))


def set_aside(state):
    """Rename an earlier run's state, if there is any: a restarted run would read it."""
    before = state.with_name(f"{state.stem}.before{state.suffix}")
    if state.exists():
        shutil.rmtree(before, ignore_errors=True)
        state.replace(before)


def is_complete(state):
    """Return whether a run can go on from a file or a folder of checkpoints."""
    return state.is_file() or any(state.glob("*/.metadata"))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
