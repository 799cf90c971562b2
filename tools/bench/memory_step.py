"""What rank 0 stores during a step, under DDP and under FSDP: for the picture of it.

A script for several ranks. It prints one line of JSON: {"DDP": [[name of the moment,
{kind: bytes}], ...], "FSDP": ...}. The step is the second one with Adam, of a network
of eight equal layers. Activations are not counted, nor is what a message travels in.
"""

import json

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.modules.module import register_module_forward_hook

from tools.bench.memory import local_bytes

LAYERS = 8
WIDTH = 1024  # 4.2 MB of weights a layer


def stored(model, shards, optimizer):
    """Return {kind: bytes} of what this rank has at the moment.

    `shards` are the bytes of each parameter's shard, which FSDP keeps while the whole
    parameter is there.
    """
    sizes = {"Adam": 0, "weights": 0, "gathered": 0, "gradients": 0}
    for name, parameter in model.named_parameters():
        is_gathered = shards[name] and not hasattr(parameter, "to_local")
        sizes["weights"] += shards[name] or parameter.nbytes
        if is_gathered:
            sizes["gathered"] += parameter.untyped_storage().nbytes()
        if parameter.grad is not None:
            sizes["gradients"] += local_bytes([parameter.grad])
    for state in optimizer.state.values():
        averages = state["exp_avg"], state["exp_avg_sq"]
        sizes["Adam"] += local_bytes(averages)
    return sizes


def moments(is_sharded):
    """Return the moments of the second step: [name, what `stored` returns] of each."""
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = nn.Sequential(*layers, nn.ReLU())
    shards = {name: 0 for name, _ in model.named_parameters()}
    if is_sharded:
        for module in (*layers, model):
            fully_shard(module, mesh=dist.init_device_mesh("cpu", (2,)))
        for name, parameter in model.named_parameters():
            shards[name] = local_bytes([parameter])
        wrapped = model
    else:
        wrapped = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters())
    found = []

    def note(name):
        found.append([name, stored(model, shards, optimizer)])

    def after_forward(module, *_):
        if module in layers:
            note(f"forward {layers.index(module) + 1}")

    def after_backward(module, *_):
        note(f"backward {layers.index(module) + 1}")

    # A hook of all modules runs before FSDP's own, which drops what was gathered.
    hook = register_module_forward_hook(after_forward)
    for layer in layers:
        layer.register_full_backward_hook(after_backward)
    for _ in range(2):
        found.clear()
        note("before")
        output = wrapped(torch.randn(32, WIDTH, requires_grad=True))
        output.square().mean().backward()
        note("step")
        optimizer.step()
        optimizer.zero_grad()
    hook.remove()
    return found


if __name__ == "__main__":
    dist.init_process_group("gloo")
    found = {"DDP": moments(is_sharded=False), "FSDP": moments(is_sharded=True)}
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
