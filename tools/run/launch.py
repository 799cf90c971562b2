"""Run a stage as the Makefile asks: `python -m tools.run.launch ddp`.

`all` and `beyond` run several. What to run them on comes from make's variables.
"""

import fcntl
import json
import os
import shutil
import signal
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path

from tools.run import data, diffs
from tools.run.plan import make_plan
from tools.run.stages import (
    BEYOND,
    BY_NAME,
    EVERY,
    ROOT,
    TARGETS,
    end_at_a_closed_pipe,
    refuse,
    refuse_unwritable,
)
from tools.run.supervise import end_with_parent, print_command, run_command

SEVERAL = {"all": TARGETS, "beyond": BEYOND}


def main():
    end_at_a_closed_pipe()
    end_with_make()
    os.chdir(ROOT)
    target = sys.argv[1]
    is_one = target not in SEVERAL
    if is_one:
        plans = [make_plan(EVERY[target], os.environ)]
    else:
        plans = plan_several(target, os.environ)
    check(plans)
    base = BY_NAME[plans[0].stage].base
    if is_one and base:
        diffs.show(base, plans[0].stage)
        print()
    if os.environ.get("NNODES"):
        print(f"torchrun waits until it runs on {os.environ['NNODES']} nodes")
    for plan in plans:
        status = run(plan)
        if status:
            sys.exit(f"{plan.stage} failed with exit status {status}")
        if not is_one:
            print()


def end_with_make():
    """Have this program end on SIGTERM and SIGHUP as on Ctrl-C, and when make ends."""
    for other in signal.SIGTERM, signal.SIGHUP:
        signal.signal(other, signal.default_int_handler)
    if "MAKELEVEL" in os.environ:  # make may be killed without a chance to end this
        end_with_parent()


def plan_several(target, settings):
    """Return the plans of `all` or `beyond`, each with a folder of its own in OUT."""
    if settings.get("NNODES"):
        refuse(f"NNODES={settings['NNODES']}: one stage takes it, not make {target}")
    plans = []
    for stage in SEVERAL[target].values():
        folder = Path(settings.get("OUT") or "runs") / stage
        plan = make_plan(stage, {**settings, "OUT": str(folder)}, several=True)
        if plan.args.out != folder:
            refuse(f"ARGS has --out {plan.args.out}: name one folder for all, OUT=DIR")
        plans.append(plan)
    return plans


def check(plans):
    """Refuse plans that cannot work with the files that are there."""
    for root in dict.fromkeys(plan.args.data for plan in plans):
        data.verify(root)
    for plan in plans:
        checkpoint = getattr(plan.args, "checkpoint", None)
        if checkpoint and not checkpoint.is_file():
            refuse(f"there is no checkpoint {checkpoint}: a stage saves one in runs/")
        refuse_unwritable(plan.args.out, "name another folder, OUT=DIR")


def run(plan):
    """Run a plan, and return its exit status."""
    with run_lock(plan.args.out) if plan.writes else nullcontext():
        if plan.writes:
            prepare_folder(plan)
        print_command(plan.environment, plan.command)
        status = run_command(plan.environment, plan.command)
        if plan.writes and status == 0:
            (plan.args.out / "unfinished").unlink(missing_ok=True)
    return status


@contextmanager
def run_lock(folder):
    """Make a folder, and refuse a second run into it until the first has ended."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = open(folder / ".lock", "w")  # noqa: SIM115
    except OSError as error:  # it may be somebody else's
        refuse(f"cannot write to {error.filename}: name another folder, OUT=DIR")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refuse(f"another run writes to {folder}: name another folder, OUT=DIR")
        except OSError:  # some network disks have no locks
            pass
        yield


def prepare_folder(plan):
    """Take an earlier run's results away, and mark the folder until this one ends well.

    An earlier state is renamed; with --resume, all stays. `make compare` reads the mark
    and the flags.
    """
    out = plan.args.out
    state = BY_NAME[plan.stage].state
    if not getattr(plan.args, "resume", False):
        (out / "metrics.csv").unlink(missing_ok=True)
        (out / "model.pth").unlink(missing_ok=True)
        if state and (out / state).exists():
            before = (out / state).with_suffix(f".before{Path(state).suffix}")
            shutil.rmtree(before, ignore_errors=True)
            (out / state).replace(before)
    (out / "unfinished").touch()
    flags = {name: str(value) for name, value in vars(plan.args).items()}
    (out / "flags.json").write_text(json.dumps(flags))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
