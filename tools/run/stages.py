"""The stages, in order, and what every tool has to know about them."""

import atexit
import importlib.util
import os
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Before this version FSDP over gloo fails, or adds up gradients in silence.
FSDP = (2, 9)


@dataclass(frozen=True)
class Stage:
    """What the tools know about one stage."""

    target: str  # `make cpu` runs it
    name: str  # of its folder
    base: str | None  # the stage that its diff starts from
    beyond: bool = False  # its folder is in beyond/
    cpu_processes: int = 0  # ranks without a GPU; 0 where torchrun does not start it
    oldest: tuple = (2, 4)  # the oldest PyTorch with which it is right
    shares_gpus: bool = False  # two of its ranks may use the same GPU
    only_processes: int | None = None  # the only number of ranks it runs on; None: any
    same_images: int | None = 1  # ranks that train on the same images; None: all ranks
    state: str | None = None  # what --resume reads in --out; None: it has no --resume


TABLE = [
    Stage("cpu", "01_cpu", None),
    Stage("single_gpu", "02_single_gpu", "01_cpu"),
    Stage("dp", "03_dp", "02_single_gpu"),
    Stage("ddp", "04_ddp", "03_dp", cpu_processes=2, shares_gpus=True),
    Stage(
        "ddp_inference", "05_ddp_inference", "04_ddp", cpu_processes=2, shares_gpus=True
    ),
    Stage("model_parallel", "06_model_parallel", "02_single_gpu"),
    Stage(
        "fsdp", "07_fsdp", "05_ddp_inference", beyond=True, cpu_processes=2, oldest=FSDP
    ),
    Stage(
        "tensor_parallel",
        "08_tensor_parallel",
        "07_fsdp",
        beyond=True,
        cpu_processes=2,
        oldest=(2, 6),
        same_images=None,
    ),
    Stage(
        "pipeline",
        "09_pipeline",
        "08_tensor_parallel",
        beyond=True,
        cpu_processes=2,
        oldest=(2, 6),
        only_processes=2,
        same_images=None,
    ),
    Stage(
        "hybrid",
        "10_hybrid",
        "07_fsdp",
        beyond=True,
        cpu_processes=4,
        oldest=FSDP,
        same_images=2,
    ),
    Stage(
        "resume",
        "11_resume",
        "05_ddp_inference",
        beyond=True,
        cpu_processes=2,
        shares_gpus=True,
        state="state.pth",
    ),
    Stage(
        "sharded_checkpoint",
        "12_sharded_checkpoint",
        "07_fsdp",
        beyond=True,
        cpu_processes=2,
        oldest=FSDP,
        state="checkpoints",
    ),
]

BY_NAME = {stage.name: stage for stage in TABLE}
# make target -> folder: the six, those in beyond/, and all of them
TARGETS = {stage.target: stage.name for stage in TABLE if not stage.beyond}
BEYOND = {stage.target: stage.name for stage in TABLE if stage.beyond}
EVERY = TARGETS | BEYOND
STAGES = list(TARGETS.values())
BY_TORCHRUN = [stage.name for stage in TABLE if stage.cpu_processes]
DISTRIBUTED = [name for name in BY_TORCHRUN if name in STAGES]
RESUMES = [stage.name for stage in TABLE if stage.state]
# Processes on a machine without a GPU: the fewest that exchange something.
CPU_PROCESSES = {name: BY_NAME[name].cpu_processes for name in BY_TORCHRUN}

OWN = "before", "after_ddp", "after_fsdp"  # scripts in beyond/own_script/, no stages


def folder(stage):
    """Return the folder of a stage: `ROOT/01_cpu`, `ROOT/beyond/07_fsdp`."""
    if stage in OWN:
        return ROOT / "beyond" / "own_script"
    return ROOT / "beyond" / stage if stage in BEYOND.values() else ROOT / stage


def script(stage):
    """Return the path of a stage's script, or of one in OWN."""
    return folder(stage) / (f"{stage}.py" if stage in OWN else "mnist.py")


def load(stage):
    """Return the script of a stage as a module, without running it."""
    return load_file(stage, script(stage))


def load_file(name, path):
    """Return a Python file as a module of that name."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find_stage(name):
    """Return the stage that a person means by `04_ddp`, `04_ddp/`, `ddp`, `04` or `4`.

    Ends the program with one line that lists the stages where there is none.
    """
    name = str(name).rstrip("/").removeprefix("beyond/")
    for target, stage in EVERY.items():
        if name in (stage, target, stage[:2], stage[:2].lstrip("0")):
            return stage
    refuse(f"there is no stage {name!r}: take one of {', '.join(EVERY.values())}")


def previous(stage):
    """Return the stage that the diff of `stage` starts from; None for the first."""
    return BY_NAME[stage].base


def too_old(torch_version, names=tuple(BY_NAME)):
    """Return which stages are not right with a PyTorch, in a line, or None.

    `torch_version` is a text such as 2.8.0 or 2.8.0+cpu; `names` the stages asked for.
    """
    major, minor = torch_version.split(".")[:2]
    found = int(major), int(minor)
    wrong = [BY_NAME[name] for name in names if found < BY_NAME[name].oldest]
    if not wrong:
        return None
    needs = {}
    for stage in wrong:
        needs.setdefault(stage.oldest, []).append(stage.name)
    parts = []
    for (major, minor), stages in sorted(needs.items()):
        verb = "needs" if len(stages) == 1 else "need"
        parts.append(f"{', '.join(stages)} {verb} PyTorch {major}.{minor} or newer")
    why = ""
    if FSDP in needs:
        why = (
            ": over gloo, 2.7 and 2.8 add gradients up instead of averaging them "
            "(pytorch#162338)"
        )
    return f"{'; '.join(parts)}{why}; here is {torch_version}"


def refuse_old(stage):
    """End the program with one line if the installed PyTorch is too old for a stage."""
    wrong = too_old(version("torch"), [stage])
    if wrong:
        refuse(wrong)


def end_at_a_closed_pipe():
    """Have this program end in silence when its reader has gone: `make diff … | head`.

    Without an error, too: an end by SIGPIPE is one, and make would say so.
    """

    def end(kind, error, trace):
        if issubclass(kind, BrokenPipeError):
            os._exit(0)
        sys.__excepthook__(kind, error, trace)

    def flush():  # before Python does, which could only complain
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            os._exit(0)

    sys.excepthook = end
    atexit.register(flush)


def refuse_unwritable(folder, advice):
    """End the program with one line where a folder is not to be written, or made."""
    parent = next(
        path for path in [folder, *folder.absolute().parents] if path.exists()
    )
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        refuse(f"cannot write to {folder}: {advice}")


def refuse(message):
    """End the program with one line on stderr and exit status 1."""
    sys.exit(message)
