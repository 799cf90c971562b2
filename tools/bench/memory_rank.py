"""What `make memory` adds to each process: hooks that measure its first step."""

import json

import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_post_hook


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
