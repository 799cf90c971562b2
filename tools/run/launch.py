"""`make ddp` and similar: run one or more stages as make's variables say."""

import fcntl
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

from onecurve.api import end_with_parent
from tools.run import compare, data, essence, results
from tools.run.plan import make_plan
from tools.run.stages import (
    BEYOND,
    BY_NAME,
    EVERY,
    TARGETS,
    TRANSFORMER,
    refuse,
    refuse_unwritable,
)
from tools.run.supervise import print_command, run_command

SEVERAL = {"all": TARGETS, "beyond": BEYOND, "transformer": TRANSFORMER}


def main(target):
    """Run one stage, or several and then compare them."""
    end_with_make()
    is_one = target not in SEVERAL
    if is_one:
        plans = [make_plan(EVERY[target], os.environ)]
    else:
        plans = plan_several(target, os.environ)
    check(plans)
    base = BY_NAME[plans[0].stage].base
    if is_one and base:
        essence.show(plans[0].stage)
        print()
    for plan in plans:
        status = run(plan)
        if status:
            sys.exit(f"{plan.stage} failed with exit status {status}")
        if not is_one:
            print()
    if not is_one:
        compare.main(os.environ.get("OUT"))


def end_with_make():
    """Exit on SIGTERM and SIGHUP as on Ctrl-C, and when make exits."""
    for other in signal.SIGTERM, signal.SIGHUP:
        signal.signal(other, signal.default_int_handler)
    if "MAKELEVEL" in os.environ:  # a killed make can't stop this process
        end_with_parent()


def plan_several(target, settings):
    """Return the plans of a target in SEVERAL, each with its own folder in OUT."""
    plans = []
    for stage in SEVERAL[target].values():
        folder = Path(settings.get("OUT") or "runs") / stage
        plan = make_plan(stage, {**settings, "OUT": str(folder)}, several=True)
        if plan.args.out != folder:
            refuse(f"ARGS contains --out {plan.args.out}: use OUT=DIR for all stages")
        plans.append(plan)
    return plans


def check(plans):
    """Refuse plans that cannot work with the existing files."""
    roots = [plan.args.data for plan in plans if "data" in plan.args]
    for root in dict.fromkeys(roots):
        data.verify(root)
    for plan in plans:
        checkpoint = getattr(plan.args, "checkpoint", None)
        if checkpoint and not checkpoint.is_file():
            refuse(f"no checkpoint {checkpoint}. Stages save checkpoints in runs/")
        refuse_unwritable(plan.args.out, "Choose another folder: OUT=DIR")
        if not checkpoint:
            results.refuse_foreign(plan.args.out)


def run(plan):
    """Run a plan; return its exit status."""
    if not plan.writes:
        return start(plan)
    out = plan.args.out
    with run_lock(out):
        results.begin(plan)
        status = start(plan)
        if status == 0:
            (out / results.MARK).unlink(missing_ok=True)
    return status


def start(plan):
    """Print a plan's command and run it; return its exit status."""
    print_command(plan.environment, plan.command)
    return run_command(plan.environment, plan.command)


@contextmanager
def run_lock(folder):
    """Create a folder and refuse a second run into it until the first ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refuse(f"{folder} is in use by another run. Choose another folder: OUT=DIR")
        except OSError:  # some network disks lack locks
            pass
        yield
