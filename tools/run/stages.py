"""The stages, in order, and what every tool has to know about them."""

import importlib.util
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Before this version FSDP over gloo fails, or adds up gradients in silence.
FSDP = (2, 9)
TRIED = (2, 11)  # nobody has tried stage 15 with an older one
SCHEDULES = (2, 15)  # hands `loss_kwargs` to the loss; 2.11 does not
SAVED = 2**20  # bytes that a stage saves in OUT, rounded up
# It warns of stage 10, which gathers weights along one dimension after the other.
REDISTRIBUTE = "torch.distributed.tensor._redistribute"


@dataclass(frozen=True)
class Stage:
    """What the tools know about one stage."""

    name: str  # of its folder
    base: str | None  # the stage that its diff starts from
    cpu_processes: int = 0  # ranks without a GPU; 0 where torchrun does not start it
    oldest: tuple = (2, 4)  # the oldest PyTorch with which it is right
    has_own_curve: bool = False  # it prints other losses than the stage before it
    shares_gpus: bool = False  # two of its ranks may use the same GPU
    only_processes: int | None = None  # the only number of ranks it runs on; None: any
    parts: int | str | None = None  # its ranks share so many; a text is a flag's name
    together: int | None = 1  # ranks that train on the same images; None: all ranks
    state: str | None = None  # what --resume reads in --out; None: it has no --resume
    quiet: str | None = None  # a module of PyTorch whose warnings help nobody here

    @property
    def room(self):
        """The folder that its folder is in; "" is the root."""
        if self.name < "07":
            return ""
        return "beyond" if self.name < "13" else "transformer"

    @property
    def curve(self):
        """The first of the stages whose losses it has to print."""
        if self.has_own_curve or not self.base:
            return self.name
        return BY_NAME[self.base].curve

    @property
    def target(self):
        """What a person types: `make cpu` runs 01_cpu."""
        return self.name[3:]

    @property
    def file(self):
        """The name of its script."""
        return "gpt.py" if self.room == "transformer" else "mnist.py"


TABLE = [
    Stage("01_cpu", None),
    Stage("02_single_gpu", "01_cpu"),
    Stage("03_dp", "02_single_gpu"),
    Stage("04_ddp", "03_dp", 2, shares_gpus=True),
    Stage("05_ddp_inference", "04_ddp", 2, shares_gpus=True),
    Stage("06_model_parallel", "02_single_gpu"),
    Stage("07_fsdp", "05_ddp_inference", 2, FSDP),
    Stage("08_tensor_parallel", "07_fsdp", 2, (2, 6), together=None),
    Stage(
        "09_pipeline", "08_tensor_parallel", 2, (2, 6), only_processes=2, together=None
    ),
    Stage("10_hybrid", "07_fsdp", 4, FSDP, together=2, quiet=REDISTRIBUTE),
    Stage("11_resume", "05_ddp_inference", 2, shares_gpus=True, state="state.pth"),
    Stage("12_sharded_checkpoint", "07_fsdp", 2, FSDP, state="checkpoints"),
    Stage("13_gpt", None),
    Stage("14_data_parallel", "13_gpt", 2, shares_gpus=True),
    # Ranks share four heads, the blocks, 32 tokens, four experts.
    Stage("15_sequence_parallel", "14_data_parallel", 2, TRIED, parts=4, together=None),
    Stage(
        "16_pipeline_1f1b",
        "14_data_parallel",
        2,
        SCHEDULES,
        parts="blocks",
        together=None,
    ),
    Stage("17_context_parallel", "14_data_parallel", 2, parts=32, together=None),
    Stage("18_moe", "13_gpt", has_own_curve=True),
    Stage("19_expert_parallel", "18_moe", 2, parts=4),
    Stage("20_grid", "17_context_parallel", 4, FSDP, together=2),
]

BY_NAME = {stage.name: stage for stage in TABLE}
# make target -> folder: all of them, the six, those in beyond/ and in transformer/
EVERY = {stage.target: stage.name for stage in TABLE}
TARGETS = {stage.target: stage.name for stage in TABLE if stage.room == ""}
BEYOND = {stage.target: stage.name for stage in TABLE if stage.room == "beyond"}
TRANSFORMER = {s.target: s.name for s in TABLE if s.room == "transformer"}
MNIST = TARGETS | BEYOND  # those of the first curve
STAGES = list(TARGETS.values())
# Those that torchrun starts, and the fewest of their processes that exchange something.
CPU_PROCESSES = {row.name: row.cpu_processes for row in TABLE if row.cpu_processes}
RESUMES = [row.name for row in TABLE if row.state]

OWN = "before", "after_ddp", "after_fsdp"  # scripts in beyond/own_script/, no stages


def folder(stage):
    """Return the folder of a stage: `ROOT/01_cpu`, `ROOT/beyond/07_fsdp`."""
    if stage in OWN:
        return ROOT / "beyond" / "own_script"
    return ROOT / BY_NAME[stage].room / stage


def script(stage):
    """Return the path of a stage's script, or of one in OWN."""
    return folder(stage) / (f"{stage}.py" if stage in OWN else BY_NAME[stage].file)


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
    name = Path(name).name
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
    wrong = [name for name in names if found < BY_NAME[name].oldest]
    if not wrong:
        return None
    major, minor = max(BY_NAME[name].oldest for name in wrong)
    advice = f"take {major}.{minor} or newer (docs/SETUP.md says why)"
    return f"PyTorch {torch_version} is too old for {', '.join(wrong)}: {advice}"


def refuse_unwritable(folder, advice):
    """End the program with one line where a folder is not to be written, or made.

    Nor is one whose disk has no room for what a stage saves.
    """
    if str(folder).startswith("~"):  # in quotes, or behind ARGS=
        refuse(f"{folder} would be a folder named ~ in here: write $HOME instead")
    parent = next(
        path for path in [folder, *folder.absolute().parents] if path.exists()
    )
    try:
        with tempfile.TemporaryFile(dir=parent) as file:
            file.write(bytes(SAVED))
    except OSError as error:
        refuse(f"cannot write to {folder} ({error.strerror}): {advice}")


def make_folder():
    """Return the folder of OUT=, or runs/, made; refuse one that cannot be written."""
    out = Path(os.environ.get("OUT") or "runs").absolute()
    refuse_unwritable(out, "name another folder, OUT=DIR")
    out.mkdir(parents=True, exist_ok=True)
    return out


def save_page(name, text):
    """Save a page of HTML in that folder, whole or not at all; print its address."""
    path = make_folder() / name
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
    print(path.as_uri())


def refuse(message):
    """End the program with one line on stderr and exit status 1."""
    sys.exit(message)
