"""The memory of each rank of each stage: `make memory ARGS="--hidden 2048"`.

Runs every stage for one step, in which hooks measure: bytes of parameters and of
gradients, then of the state that Adam keeps for them; and of the largest layer while it
computes. The stages that only add checkpoints are left out. DDP's copy of the gradients
in its buckets is not counted. GPUS, NPROC and ARGS are as tools/bench/runs.py says.
"""

import json
import os
import tempfile
from pathlib import Path

import torch
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from tools.bench import runs
from tools.bench.tables import aligned
from tools.run.stages import MNIST, RESUMES, ROOT

MEASURED = [stage for stage in MNIST.values() if stage not in RESUMES]
KINDS = ["parameters", "gradients", "Adam", "layer"]  # of memory


def local_bytes(tensors):
    """Return the bytes of the tensors, or of their shards, in this process."""
    size = 0
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        size += local.nbytes
    return size


def measure_first_step(rank, folder):
    """Have this process measure its first step, and leave RANK.json."""
    layers = []  # as they are in the forward pass, where FSDP has gathered them

    def after_layer(layer, *_):
        layers.append(local_bytes(layer.parameters(recurse=False)))

    def after_step(optimizer, *_):
        hook.remove()
        weights = optimizer.param_groups[0]["params"]
        weights = [weight for weight in weights if weight.grad is not None]
        adam = torch.optim.Adam(weights)
        adam.step()
        found = {
            "parameters": local_bytes(weights),
            "gradients": local_bytes(weight.grad for weight in weights),
            "Adam": sum(local_bytes(state.values()) for state in adam.state.values()),
            "layer": max(layers),
        }
        (folder / f"{rank}.json").write_text(json.dumps(found))

    register_module_forward_hook(after_layer)
    hook = register_optimizer_step_post_hook(after_step)


def measure(stage):
    """Return the memory of each rank of a stage in a step: a list of {kind: bytes}."""
    with tempfile.TemporaryDirectory() as folder:
        prepare = measure_first_step, Path(folder)
        images = 64, 10  # a step
        number = runs.run_stage(stage, images, "--epochs 1", prepare, several=True)
        files = [Path(folder) / f"{rank}.json" for rank in range(number)]
        return [json.loads(file.read_text()) for file in files]


def main():
    os.chdir(ROOT)
    print("bytes on each rank, in a step of every stage ...", flush=True)
    rows = [["stage", "rank", *KINDS]]
    for stage in MEASURED:
        for rank, sizes in enumerate(measure(stage)):
            rows.append([stage, rank, *[f"{sizes[kind]:,}" for kind in KINDS]])
    print(aligned(rows))


if __name__ == "__main__":
    main()
