"""What rank 0 stores during a step, under DDP and under FSDP: for the picture of it.

A script for two ranks. It prints one line of JSON: {"DDP": [{kind: bytes}, ...],
"FSDP": ...}. The step is the second one with Adam, of a network of eight equal layers.
Activations are not counted, nor is what a message travels in.
"""

import json

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from tools.bench.held import local_bytes

LAYERS = 8
WIDTH = 1024  # 4.2 MB of weights a layer


def stored(model, optimizer):
    """Return {kind: bytes} of what this rank has at the moment.

    The optimizer always has the parameters that this rank keeps. Under FSDP, a layer
    that is gathered has whole ones in their place.
    """
    kept = optimizer.param_groups[0]["params"]
    numbers = {id(parameter) for parameter in kept}
    present = list(model.parameters())
    gathered = [one for one in present if id(one) not in numbers]
    averages = []
    for state in optimizer.state.values():
        averages += [state["exp_avg"], state["exp_avg_sq"]]
    return {
        "Adam's averages": local_bytes(averages),
        "weights": local_bytes(kept),
        "a gathered layer": local_bytes(gathered),
        "gradients": local_bytes(one.grad for one in present if one.grad is not None),
    }


def moments(mechanism):
    """Return what `stored` returns at each moment of the second step, a list.

    Before it, after each layer in the forward and in the backward pass, and at its end.
    """
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = nn.Sequential(*layers)
    wrapped = model
    if mechanism == "DDP":
        wrapped = nn.parallel.DistributedDataParallel(model)
    else:
        for module in (*layers, model):
            fully_shard(module, mesh=dist.init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.Adam(model.parameters())
    found = []

    def note(*_):
        found.append(stored(model, optimizer))

    for layer in layers:
        # Before FSDP's own hook, which drops what was gathered.
        layer.register_forward_hook(note, prepend=True)
        layer.register_full_backward_hook(note)
    for _ in range(2):
        found.clear()
        note()
        output = wrapped(torch.randn(32, WIDTH, requires_grad=True))
        output.sum().backward()
        note()
        optimizer.step()
        optimizer.zero_grad()
    return found


if __name__ == "__main__":
    dist.init_process_group("gloo")
    found = {mechanism: moments(mechanism) for mechanism in ("DDP", "FSDP")}
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
