import os
import re
import tempfile
from pathlib import Path

import torch

from tools.lab.checks import TEST, Wrong, ended
from tools.run.stages import load

SEED = 1  # not the script's, which would give the weights that it starts with


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def saved_on_a_gpu(path):
    """Write a checkpoint as a machine with a GPU writes it: its tensors say cuda:0."""
    torch.manual_seed(SEED)
    weights = load("01_cpu").Net(128).state_dict()
    tag = torch.serialization.location_tag
    torch.serialization.location_tag = lambda storage: "cuda:0"
    try:
        torch.save({name: value.float() for name, value in weights.items()}, path)
    finally:
        torch.serialization.location_tag = tag


def check(run):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pth"
        saved_on_a_gpu(path)
        flags = "--checkpoint", str(path), "--batch-size", "63"
        seen = run(*flags, processes=3, float64=False)
        ended(seen)
        expected = run.solution(*flags, processes=3, float64=False)
        told, right = (
            re.findall(r"test (\d+)/(\d+)$", s.stdout.strip()) for s in (seen, expected)
        )
        if not told or told != right:
            raise Wrong(
                f"The script prints {seen.stdout.strip()!r}, expected the counts "
                f"{'/'.join(right[0])} of {TEST} test images."
            )
        proof = Path(folder) / "ran"
        torch.save({"layers.1.weight": Payload(str(proof))}, path)
        run(*flags, processes=1, float64=False)
        if proof.exists():
            raise Wrong("A file with code in it was loaded, and its code has run.")
