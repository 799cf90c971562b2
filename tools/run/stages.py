"""The stages, in order, and what every tool has to know about them."""

import atexit
import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# make target -> folder
TARGETS = {
    "cpu": "01_cpu",
    "single_gpu": "02_single_gpu",
    "dp": "03_dp",
    "ddp": "04_ddp",
    "ddp_inference": "05_ddp_inference",
    "model_parallel": "06_model_parallel",
}
STAGES = list(TARGETS.values())
DISTRIBUTED = ["04_ddp", "05_ddp_inference"]
BEYOND = {  # where it goes on, in the folder beyond/
    "fsdp": "07_fsdp",
    "tensor_parallel": "08_tensor_parallel",
    "pipeline": "09_pipeline",
    "hybrid": "10_hybrid",
    "resume": "11_resume",
    "sharded_checkpoint": "12_sharded_checkpoint",
}
EVERY = TARGETS | BEYOND
BY_TORCHRUN = [*DISTRIBUTED, *BEYOND.values()]
# Processes on a machine without a GPU: the fewest that exchange something.
CPU_PROCESSES = dict.fromkeys(BY_TORCHRUN, 2) | {"10_hybrid": 4}
# The stage before, where it is not the one with the number before.
BEFORE = {
    "07_fsdp": "05_ddp_inference",
    "10_hybrid": "07_fsdp",
    "11_resume": "05_ddp_inference",
    "12_sharded_checkpoint": "07_fsdp",
}
# The stage whose diff is the lesson, where it is not the stage before.
LESSON_FROM = {"06_model_parallel": "02_single_gpu"}


def folder(stage):
    """Return the folder of a stage: `ROOT/01_cpu`, `ROOT/beyond/07_fsdp`."""
    return ROOT / "beyond" / stage if stage in BEYOND.values() else ROOT / stage


def script(stage):
    """Return the path of a stage's script, `mnist.py` in its folder."""
    return folder(stage) / "mnist.py"


def load(stage):
    """Return the script of a stage as a module, without running it."""
    return load_file(stage, script(stage))


def load_file(name, path):
    """Return a Python file as a module of that name."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find(name):
    """Return the stage that a person means by `04_ddp`, `04_ddp/`, `ddp`, `04` or `4`.

    Ends the program with one line that lists the stages where there is none.
    """
    name = str(name).rstrip("/").removeprefix("beyond/")
    for target, stage in EVERY.items():
        if name in (stage, target, stage[:2], stage[:2].lstrip("0")):
            return stage
    refuse(f"there is no stage {name!r}: take one of {', '.join(EVERY.values())}")


def previous(stage):
    """Return the stage before `stage`, or None before the first."""
    stages = list(EVERY.values())
    index = stages.index(stage)
    return BEFORE.get(stage, stages[index - 1] if index else None)


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
