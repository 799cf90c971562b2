"""A plan says what `make ddp GPUS=0,1` runs, on what, and with which flags.

It is made from make's variables without side effects: nothing is printed, written,
downloaded or started. A variable or flag that cannot work ends the program with one
line that says what works.
"""

import argparse
import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tools.run import data
from tools.run.flags import parse_flags
from tools.run.gpus import choose_processes, in_words, plan_gpus, positive
from tools.run.stages import BY_NAME, CPU_PROCESSES, RESUMES, refuse, script, too_old

MASTER_PORT = "29500"  # torchrun's own default
WAIT = "900"  # seconds that nodes wait for each other


@dataclass(frozen=True)
class Nodes:
    """The machines that a run uses, and which of them this one is."""

    count: int = 1
    rank: int = 0
    address: str = ""  # of node 0
    port: int = 0
    wait: int = 0  # seconds that a node waits for the others

    def options(self):
        """Return torchrun's options, a list of words."""
        if not self.address:
            return ["--standalone"]
        # torchrun waits twice as long as this when it connects
        timeout = max(self.wait // 2, 1)
        return [
            f"--nnodes={self.count}",
            f"--node-rank={self.rank}",
            f"--rdzv-conf=timeout={timeout}",
            f"--master-addr={self.address}",
            f"--master-port={self.port}",
        ]


@dataclass(frozen=True)
class Plan:
    """One run of a stage."""

    stage: str
    nodes: Nodes
    processes: int  # that torchrun starts on this node; 0: no torchrun, one process
    environment: dict  # variables that the command needs, texts by name
    launcher: list  # the words before the script: python, or torchrun and its options
    flags: list  # the words after the script
    args: argparse.Namespace  # the same flags as the script reads them
    is_new: bool  # an earlier run's state is renamed, so that --resume does not read it
    notes: list  # lines for the user about what was chosen

    @property
    def script(self):
        """The script as it stands in the command, such as `04_ddp/mnist.py`."""
        return str(data.shown(script(self.stage)))

    @property
    def command(self):
        """The words of the whole command."""
        return [*self.launcher, self.script, *self.flags]

    @property
    def state(self):
        """The file or folder in which the stage saves its state, or None."""
        name = BY_NAME[self.stage].state
        return self.args.out / name if name else None

    @property
    def checkpoint(self):
        """The file that it evaluates instead of training, or None."""
        return getattr(self.args, "checkpoint", None)


def make_plan(stage, settings):
    """Return the Plan of a stage for make's variables, texts by name.

    An empty text stands for a variable that was not given.
    """
    wrong = too_old(version("torch"), [stage])
    if wrong:
        refuse(wrong)
    given = {name: text for name, text in settings.items() if text}
    visible, count, notes = plan_gpus(stage, given)
    flags = plan_flags(stage, given)
    args = parse_flags(stage, flags, "cuda" if count else "cpu")
    check_values(args)
    nodes = plan_nodes(stage, given)
    environment = {}
    # The kernels of this tutorial are tiny. More threads gain little on an idle
    # machine. On a busy one they spend most of their time waiting for each other.
    if "OMP_NUM_THREADS" not in settings:
        environment["OMP_NUM_THREADS"] = "1"
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(visible)
    variables, options = plan_restarts(stage, given)
    environment |= variables
    is_new = "RESTARTS" in given and not args.resume
    if is_new:
        flags.append("--resume")
        args.resume = True
    processes = 0
    launcher = [python()]
    if stage in CPU_PROCESSES:
        batch = 0 if getattr(args, "checkpoint", None) else args.batch_size
        processes, more = choose_processes(stage, given, count, batch, nodes.count)
        notes += more
        if processes > count > 0:
            why = f"{processes} processes share {in_words(count)}"
            share_gpus(flags, args, why)
        launcher = [*torchrun(), *nodes.options(), *options]
        launcher.append(f"--nproc-per-node={processes}")
    return Plan(
        stage, nodes, processes, environment, launcher, flags, args, is_new, notes
    )


def python():
    """Return this Python as a person types it: `.venv/bin/python`."""
    return str(data.shown(sys.executable))


def torchrun():
    """Return the words that start torchrun in this Python's environment.

    It need not lie beside the Python: a system's Python may have it in another folder.
    """
    path = Path(sys.executable).with_name("torchrun")
    if path.exists():
        return [str(data.shown(path))]
    return [python(), "-m", "torch.distributed.run"]


def plan_flags(stage, given):
    """Return the words after the script that make's variables ask for."""
    root = Path(given["DATA"]) if "DATA" in given else data.FULL
    flags = ["--data", str(data.shown(root))]
    flags += ["--out", given.get("OUT", f"runs/{stage}")]
    if "EPOCHS" in given:
        flags += ["--epochs", str(positive("EPOCHS", given["EPOCHS"]))]
    try:
        return flags + shlex.split(given.get("ARGS", ""))
    except ValueError as error:
        refuse(f"ARGS={given['ARGS']!r} cannot be split into words: {error}")


def check_values(args):
    """Refuse a value with which the script would fail, or train nothing."""
    if args.epochs < 1:
        refuse(f"--epochs {args.epochs}: a run has at least one epoch, EPOCHS=1")
    for name in "batch_size", "hidden", "lr", "micro_batches":
        value = getattr(args, name, 1)
        if not value > 0:  # which nan is not, either
            refuse(f"--{name.replace('_', '-')} {value} must be more than 0")


def plan_nodes(stage, given):
    """Return the Nodes that NNODES and the variables that go with it ask for."""
    if "NNODES" not in given:  # a cluster may have the others in its environment
        return Nodes()
    usage = "such as NNODES=2 NODE_RANK=0 MASTER_ADDR=host, NODE_RANK=1 on the second"
    if stage not in CPU_PROCESSES:
        advice = "NNODES needs a stage that torchrun starts, such as ddp"
        refuse(f"{stage} runs on one machine: {advice}")
    absent = [name for name in ("NODE_RANK", "MASTER_ADDR") if name not in given]
    if absent:
        refuse(f"several nodes need {' and '.join(absent)} too, {usage}")
    count = positive("NNODES", given["NNODES"])
    rank = given["NODE_RANK"]
    if rank not in [str(number) for number in range(count)]:
        refuse(f"NODE_RANK={rank!r} must be one of 0 to {count - 1}, {usage}")
    port = given.get("MASTER_PORT", MASTER_PORT)
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        refuse(f"MASTER_PORT={port!r} must be a port, such as {MASTER_PORT}")
    wait = positive("WAIT", given.get("WAIT", WAIT))
    return Nodes(count, int(rank), given["MASTER_ADDR"], int(port), wait)


def plan_restarts(stage, given):
    """Return (variables to add, torchrun's options) for what RESTARTS asks for."""
    if "RESTARTS" not in given:
        return {}, []
    if "NNODES" in given:
        advice = "on several, start all nodes again with ARGS=--resume"
        refuse(f"RESTARTS works on one machine; {advice}")
    if stage not in RESUMES:
        refuse(f"{stage} does not save its state: `make resume RESTARTS=3` does")
    # Otherwise the new ranks may read the addresses of the dead ones, and hang:
    # https://github.com/pytorch/pytorch/issues/135712
    environment = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return environment, [f"--max-restarts={positive('RESTARTS', given['RESTARTS'])}"]


def share_gpus(flags, args, why):
    """Add --backend gloo to flags and args: NCCL refuses two processes on one GPU.

    Refuses another backend that the user asked for.
    """
    if args.backend == "gloo":
        return
    if any(word.startswith("--backend") for word in flags):
        advice = "leave the flag out"
        refuse(f"--backend {args.backend}: {why}, which needs gloo; {advice}")
    flags += ["--backend", "gloo"]
    args.backend = "gloo"
