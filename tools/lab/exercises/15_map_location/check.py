import os
import re
import tempfile
from pathlib import Path

import torch

from tools.lab.checks import Wrong, ended
from tools.lab.fake_cuda import three_gpus
from tools.run.stages import ROOT, load_file

TRY = {"processes": 3}

AS_ON_GPUS = load_file("as_on_gpus", ROOT / "exercises/as_on_gpus.py")


def prepare_try(folder):
    """Write the checkpoint that the page names; return the flags that name it."""
    path = folder / "gpu.pth"
    AS_ON_GPUS.save(AS_ON_GPUS.train(), path)
    return ["--checkpoint", path]


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def counts(record):
    """Return the counts that a script prints, or None: correct, total."""
    found = re.findall(r"test (\d+)/(\d+)$", record.stdout.strip())
    return tuple(map(int, found[0])) if found else None


def check(run):
    with tempfile.TemporaryDirectory() as folder:
        flags = prepare_try(Path(folder))
        right = counts(run.solution(*flags, processes=1))
        for processes, fake in (3, None), (2, three_gpus):
            record = run(*flags, processes=processes, fake=fake)
            ended(record)
            if counts(record) != right:
                where = "three GPUs" if fake else "no GPU"
                raise Wrong(
                    f"With {where} {processes} processes print "
                    f"{record.stdout.strip()!r}; the network in the file has "
                    f"{right[0]} of {right[1]} right."
                )
        for rank in range(processes):  # those on GPUs
            used = {event["device"] for event in record.of("restored", rank)}
            if used - {f"cuda:{rank}"}:
                raise Wrong(
                    f"Rank {rank} works on cuda:{rank}, and has loaded the file onto "
                    f"{', '.join(sorted(used))}: there is no room for all ranks."
                )
        proof = Path(folder) / "ran"
        path = Path(folder) / "code.pth"
        torch.save({"layers.1.weight": Payload(str(proof))}, path)
        record = run("--checkpoint", path, processes=1)
        if proof.exists():
            raise Wrong("A file with code in it was loaded, and its code has run.")
        if not record.status:
            raise Wrong(
                "A file with code in it is to end the run with an error; the script "
                f"prints {record.stdout.strip()!r}."
            )
