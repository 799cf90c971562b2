import re
import tempfile
from pathlib import Path

from tools.lab.record import Wrong
from tools.run.stages import ROOT, load_file

AS_ON_GPUS = load_file("as_on_gpus", ROOT / "exercises/as_on_gpus.py")


def prepare_try(folder):
    """Write the checkpoint that the page names; return the flags that name it."""
    path = folder / "gpu.pth"
    AS_ON_GPUS.save(AS_ON_GPUS.train(), path)
    return ["--checkpoint", path]


def check(run):
    with tempfile.TemporaryDirectory() as folder:
        expect_counts(run, Path(folder))


def expect_counts(run, folder):
    """Raise Wrong unless a file of three GPUs is evaluated, on the CPU and on GPUs."""
    flags = prepare_try(folder)
    right = re.findall("test (.*)", run.solution(flags=flags, processes=1).stdout)
    for processes, fake, where in (3, "", "no GPU"), (2, "three_gpus", "three GPUs"):
        record = run(flags=flags, processes=processes, fake=fake)
        if re.findall("test (.*)$", record.stdout.strip()) != right:
            raise Wrong(
                f"With {where} {processes} processes print {record.stdout.strip()!r}; "
                f"of the network in the file, {right[0]} are right."
            )
    for rank in record.ranks:  # those on GPUs
        used = {event["device"] for event in record.of("gpu restored", rank)}
        if used - {f"cuda:{rank}"}:
            raise Wrong(
                f"Rank {rank} works on cuda:{rank}, and has loaded the file onto "
                f"{', '.join(sorted(used))}: there is no room for all ranks."
            )
