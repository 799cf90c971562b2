"""The memory of each rank of each stage: `make memory ARGS="--hidden 2048"`.

Runs every stage for one step, in which hooks measure: bytes of parameters and of
gradients, then of the state that SGD with momentum and that Adam keep for them; and of
the largest layer while it computes. The stages that only add checkpoints are left out.
DDP's copy of the gradients in its buckets is not counted. GPUS, NPROC and ARGS are as
tools/bench/runs.py says.
"""

import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from tools.bench import runs
from tools.bench.tables import aligned
from tools.run.stages import BY_NAME, RESUMES

KINDS = ["parameters", "gradients", "momentum", "Adam", "layer"]  # of memory


def local_bytes(tensors):
    """Return the bytes of the tensors, or of their shards, in this process."""
    size = 0
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        if not local.is_meta:
            size += local.nbytes
    return size


def state_bytes(optimizer):
    """Return the bytes of an optimizer's state after a step."""
    optimizer.step()
    return sum(local_bytes(state.values()) for state in optimizer.state.values())


def measure_first_step(rank, folder):
    """Have this process measure its first step, leave RANK.json, and end."""
    layers = []  # as they are in the forward pass, where FSDP has gathered them

    def after_layer(layer, *_):
        layers.append(local_bytes(layer.parameters(recurse=False)))

    def after_step(optimizer, *_):
        hook.remove()
        groups = optimizer.param_groups
        weights = [weight for group in groups for weight in group["params"]]
        weights = [weight for weight in weights if weight.grad is not None]
        found = {
            "parameters": local_bytes(weights),
            "gradients": local_bytes(weight.grad for weight in weights),
            "momentum": state_bytes(torch.optim.SGD(weights, lr=0, momentum=0.9)),
            "Adam": state_bytes(torch.optim.Adam(weights)),
            "layer": max(layers),
        }
        (folder / f"{rank}.json").write_text(json.dumps(found))
        if dist.is_initialized():
            dist.barrier()  # nobody leaves while others still receive from it
        raise SystemExit

    register_module_forward_hook(after_layer)
    hook = register_optimizer_step_post_hook(after_step)


def measure(stage):
    """Return the memory of each rank of a stage in a step: a list of {kind: bytes}."""
    with tempfile.TemporaryDirectory() as folder:
        prepare = measure_first_step, Path(folder)
        number = runs.run_stage(stage, (64, 10), [], prepare)
        files = [Path(folder) / f"{rank}.json" for rank in range(number)]
        return [json.loads(file.read_text()) for file in files]


def measure_all():
    """Return {stage: what `measure` returns}."""
    return {stage: measure(stage) for stage in BY_NAME if stage not in RESUMES}


def main():
    runs.take_gpus()
    print("Bytes on each rank after a step; share: of all weights of the network\n")
    found = measure_all()
    rows = [["stage", "rank", *KINDS, "share"]]
    for stage, of_ranks in found.items():
        for rank, sizes in enumerate(of_ranks):
            numbers = [f"{sizes[kind]:,}" for kind in KINDS]
            share = sizes["parameters"] / found["01_cpu"][0]["parameters"]
            rows.append([stage, rank, *numbers, f"{share:.1%}"])
    print(aligned(rows))
    print(
        "\nA rank needs 2 times its part of the model, 3 times with momentum, and 4 "
        "times with Adam, which also counts its steps."
    )


if __name__ == "__main__":
    main()
