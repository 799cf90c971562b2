"""`make ddp` and the like: run a stage, or several, on what make's variables say."""

import fcntl
import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

from onecurve.api import end_with_parent
from tools.run import compare, data, diffs, results
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
    """Run a stage, or several and then compare them."""
    end_with_make()
    is_one = target not in SEVERAL
    if is_one:
        plans = [make_plan(EVERY[target], os.environ)]
    else:
        plans = plan_several(target, os.environ)
    check(plans)
    base = BY_NAME[plans[0].stage].base
    if is_one and base:
        diffs.show_essential(base, plans[0].stage)
        print()
    if os.environ.get("NNODES"):
        nodes = os.environ["NNODES"]
        print(f"torchrun waits for {nodes} nodes with this stage, these flags and id")
    for plan in plans:
        status = run(plan)
        if status:
            sys.exit(f"{plan.stage} failed with exit status {status}")
        if not is_one:
            print()
    if not is_one:
        compare.main(os.environ.get("OUT"))
    if target == "all" and not os.environ.get("DATA"):
        print("For all of MNIST instead of 5,000 digits: make data, then")
        print("make all DATA=data/mnist")


def end_with_make():
    """Have this program end on SIGTERM and SIGHUP as on Ctrl-C, and when make ends."""
    for other in signal.SIGTERM, signal.SIGHUP:
        signal.signal(other, signal.default_int_handler)
    if "MAKELEVEL" in os.environ:  # make may be killed without a chance to end this
        end_with_parent()


def plan_several(target, settings):
    """Return the plans of one of SEVERAL, each with a folder of its own in OUT."""
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
    roots = [plan.args.data for plan in plans if "data" in plan.args]
    for root in dict.fromkeys(roots):
        data.verify(root)
    for plan in plans:
        checkpoint = getattr(plan.args, "checkpoint", None)
        if checkpoint and not checkpoint.is_file():
            refuse(f"there is no checkpoint {checkpoint}: a stage saves one in runs/")
        refuse_unwritable(plan.args.out, "name another folder, OUT=DIR")
        if not checkpoint:
            results.refuse_foreign(plan.args.out)


def run(plan):
    """Run a plan, and return its exit status."""
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
    """Print a plan's command, run it, and return its exit status."""
    print_command(plan.environment, plan.command)
    return run_command(plan.environment, plan.command)


@contextmanager
def run_lock(folder):
    """Make a folder, and refuse a second run into it until the first has ended."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refuse(f"another run writes to {folder}: name another folder, OUT=DIR")
        except OSError:  # some network disks have no locks
            pass
        yield
