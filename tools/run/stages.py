"""The stages in order, with the facts about them that the tools need."""

import importlib.util
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Before this version, FSDP over gloo fails or silently sums gradients.
FSDP = (2, 9)
TRIED = (2, 11)  # stage 15 is untested with older versions
SCHEDULES = (2, 15)  # passes `loss_kwargs` to the loss; 2.11 does not
SURVIVED = (2, 13)  # stage 21 is untested with older versions
SAVED = 2**20  # bytes that a stage saves in OUT, rounded up
# Warns about stage 10, which gathers weights along one dimension at a time.
REDISTRIBUTE = "torch.distributed.tensor._redistribute"


@dataclass(frozen=True)
class Stage:
    """The tools' facts about one stage."""

    name: str  # the folder's name
    base: str | None  # the stage that its diff starts from
    cpu_processes: int = 0  # ranks without GPUs; 0: not started by torchrun
    oldest: tuple = (2, 4)  # the oldest PyTorch with correct results
    has_own_curve: bool = False  # its losses differ from its base's
    shares_gpus: bool = False  # two of its ranks may use the same GPU
    only_processes: int | None = None  # the only number of ranks it runs on; None: any
    parts: int | str | None = None  # its ranks divide these; a string names a flag
    together: int | None = 1  # ranks that train on the same images; None: all ranks
    state: str | None = None  # what --resume reads in --out; None: no --resume
    only_gloo: bool = False  # it is untested with NCCL's settings for lost ranks
    usual: tuple = ()  # flags that make adds, unless the user gives the first of them
    quiet: str | None = None  # a PyTorch module whose warnings are irrelevant here

    @property
    def room(self):
        """The parent folder; "" is the root."""
        if self.name < "07":
            return ""
        return "beyond" if self.name < "13" else "transformer"

    @property
    def curve(self):
        """The first stage that must print the same losses."""
        if self.has_own_curve or not self.base:
            return self.name
        return BY_NAME[self.base].curve

    @property
    def target(self):
        """The make target: `make cpu` runs 01_cpu."""
        return self.name[3:]

    @property
    def file(self):
        """The name of its script."""
        return "gpt.py" if self.room == "transformer" else "mnist.py"


TABLE = [
    Stage("01_cpu", None),
    Stage("02_single_gpu", "01_cpu"),
    Stage("03_dp", "02_single_gpu"),
    Stage("04_ddp", "02_single_gpu", 2, shares_gpus=True),
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
    # Ranks divide four heads, the blocks, 32 tokens, four experts.
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
    Stage(
        "21_lost_rank",
        "14_data_parallel",
        3,
        SURVIVED,
        shares_gpus=True,
        only_gloo=True,
        usual=("--kill", "1", "40", "--kill", "2", "100"),
    ),
]

BY_NAME = {stage.name: stage for stage in TABLE}
# make target -> folder: all stages, the six, those in beyond/ and in transformer/
EVERY = {stage.target: stage.name for stage in TABLE}
TARGETS = {stage.target: stage.name for stage in TABLE if stage.room == ""}
BEYOND = {stage.target: stage.name for stage in TABLE if stage.room == "beyond"}
TRANSFORMER = {s.target: s.name for s in TABLE if s.room == "transformer"}
MNIST = TARGETS | BEYOND  # stages of the first curve
STAGES = list(TARGETS.values())
# Stages started by torchrun -> fewest processes that communicate.
CPU_PROCESSES = {row.name: row.cpu_processes for row in TABLE if row.cpu_processes}
RESUMES = [row.name for row in TABLE if row.state]

OWN = "before", "after_ddp", "after_fsdp"  # scripts in beyond/own_script/, not stages


def folder(stage):
    """Return the folder of a stage: `ROOT/01_cpu`, `ROOT/beyond/07_fsdp`."""
    if stage in OWN:
        return ROOT / "beyond" / "own_script"
    return ROOT / BY_NAME[stage].room / stage


def script(stage):
    """Return the path of a stage's script, or of one in OWN."""
    return folder(stage) / (f"{stage}.py" if stage in OWN else BY_NAME[stage].file)


def load(stage):
    """Import a stage's script as a module without running it."""
    return load_file(stage, script(stage))


def load_file(name, path):
    """Import a Python file as a module called `name`."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find_stage(name):
    """Return the stage named by `04_ddp`, `04_ddp/`, `ddp`, `04` or `4`.

    Exits with a line that lists the stages if there is no such stage.
    """
    name = Path(name).name
    for target, stage in EVERY.items():
        if name in (stage, target, stage[:2], stage[:2].lstrip("0")):
            return stage
    refuse(f"unknown stage {name!r}. Choose one of {', '.join(EVERY.values())}")


def previous(stage):
    """Return the stage that `stage`'s diff starts from; None for the first."""
    return BY_NAME[stage].base


def too_old(torch_version, names=tuple(BY_NAME)):
    """Return a line about the stages that need a newer PyTorch, or None.

    `torch_version` is 2.8.0 or 2.8.0+cpu, for example; `names` are stages to check.
    """
    major, minor = torch_version.split(".")[:2]
    found = int(major), int(minor)
    wrong = [name for name in names if found < BY_NAME[name].oldest]
    if not wrong:
        return None
    major, minor = max(BY_NAME[name].oldest for name in wrong)
    advice = f"Install {major}.{minor} or newer (see docs/SETUP.md)"
    return f"PyTorch {torch_version} is too old for {', '.join(wrong)}. {advice}"


def refuse_unwritable(folder, advice):
    """Exit with a one-line message if a folder cannot be written or created.

    Its disk also needs room for the files that a stage saves.
    """
    if str(folder).startswith("~"):  # quoted, or in ARGS=
        refuse(f"{folder} would be a folder named ~ here. Use $HOME instead")
    parent = next(
        path for path in [folder, *folder.absolute().parents] if path.exists()
    )
    try:
        with tempfile.TemporaryFile(dir=parent) as file:
            file.write(bytes(SAVED))
    except OSError as error:
        refuse(f"cannot write to {folder} ({error.strerror}). {advice}")


def make_folder():
    """Create and return the folder OUT, or runs/; refuse an unwritable one."""
    out = Path(os.environ.get("OUT") or "runs").absolute()
    refuse_unwritable(out, "Choose another folder: OUT=DIR")
    out.mkdir(parents=True, exist_ok=True)
    return out


def save_page(name, text):
    """Save an HTML page in that folder, whole or not at all; print its URL."""
    path = make_folder() / name
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
    print(path.as_uri())


def refuse(message):
    """Exit with status 1 and a message on stderr."""
    sys.exit(message)
