import re
import tempfile
from pathlib import Path

from tools.lab.record import Wrong
from tools.run.stages import ROOT, load_file

AS_ON_GPUS = load_file("as_on_gpus", ROOT / "exercises/as_on_gpus.py")


def prepare_try(folder):
    """Write the checkpoint that the page mentions; return the flags to load it."""
    path = folder / "gpu.pth"
    AS_ON_GPUS.save(AS_ON_GPUS.train(), path)
    return ["--checkpoint", path]


def counts(record, runs):
    """The CPU and GPUs correctly evaluate a checkpoint of three GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        expect_counts(runs, Path(folder))


def expect_counts(runs, folder):
    """Raise Wrong unless the checkpoint is evaluated correctly."""
    flags = [*prepare_try(folder), "--backend", "gloo"]  # NCCL refuses to share a GPU
    options = {"flags": flags, "float64": False}  # the file is in float32
    right = re.findall("test (.*)", runs.solution(**options, processes=1).stdout)
    for processes, fake, gpus in (
        (3, "", 0),
        (2, "three_gpus", 3),
        (3, "two_gpus", 2),
        (4, "two_gpus_each", 2),
    ):
        record = runs(**options, processes=processes, fake=fake)
        where = f"{gpus} GPUs per machine"
        if re.findall("test (.*)$", record.stdout.strip()) != right:
            raise Wrong(
                f"With {where}, {processes} processes print {record.stdout.strip()!r}, "
                f"but the network in the file gets {right[0]} right."
            )
        for rank in record.ranks if gpus else []:
            expect_own_gpu(record, rank, f"cuda:{rank % gpus}")


def expect_own_gpu(record, rank, gpu):
    """Raise Wrong if a rank uses another GPU than its own."""
    events = record.of("gpu restored", rank) + record.of("gpu forward", rank)
    foreign = {event["device"] for event in events} - {gpu}
    if foreign:
        raise Wrong(
            f"Rank {rank} uses {', '.join(sorted(foreign))}, expected only {gpu}. One "
            "GPU has no room for all ranks."
        )
