import os
import re
import tempfile
from pathlib import Path

import torch

from tools.lab.checks import Wrong, ended
from tools.lab.fake_cuda import three_gpus
from tools.run.stages import load_file

SAVE = load_file("as_on_gpus", Path(__file__).with_name("as_on_gpus.py")).save
SEED = (
    "--seed",
    "1",
)  # not the script's own, which gives the weights that it starts with


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def counts(seen):
    """Return the counts that a script prints, or None: correct, total."""
    found = re.findall(r"test (\d+)/(\d+)$", seen.stdout.strip())
    return tuple(map(int, found[0])) if found else None


def check(run):
    trained = run.original(*SEED, processes=2)
    right = trained.rows[-1][1:]
    with tempfile.TemporaryDirectory() as folder:
        path, flags = (
            Path(folder) / "model.pth",
            ["--checkpoint", f"{folder}/model.pth"],
        )
        SAVE(trained.weights, path)
        for processes, fake in (3, None), (2, three_gpus):
            seen = run(*flags, processes=processes, fake=fake)
            ended(seen)
            if counts(seen) != right:
                where = "three GPUs" if fake else "no GPU"
                raise Wrong(
                    f"With {where} {processes} processes print {seen.stdout.strip()!r}; "
                    f"the network in the file has {right[0]} of {right[1]} right."
                )
        for rank in range(processes):  # those on GPUs
            used = {event["device"] for event in seen.of("restored", rank)}
            if used - {f"cuda:{rank}"}:
                raise Wrong(
                    f"Rank {rank} works on cuda:{rank}, and has loaded the file onto "
                    f"{', '.join(sorted(used))}: there is no room for all ranks."
                )
        proof = Path(folder) / "ran"
        torch.save({"layers.1.weight": Payload(str(proof))}, path)
        seen = run(*flags, processes=1)
        if proof.exists():
            raise Wrong("A file with code in it was loaded, and its code has run.")
        if not seen.status:
            raise Wrong(
                "A file with code in it is to end the run with an error; the script "
                f"prints {seen.stdout.strip()!r}."
            )
