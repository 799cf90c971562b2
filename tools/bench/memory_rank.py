"""What `make memory` adds to each process: hooks that measure its first step."""

import json

import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

KINDS = ["parameters", "gradients", "momentum", "Adam"]  # of what is held


def local_bytes(tensors):
    """Return the bytes of the tensors, or parts of tensors, that this process holds."""
    tensors = [t.to_local() if hasattr(t, "to_local") else t for t in tensors]
    return sum(t.nbytes for t in tensors if not t.is_meta)


def watch(rank, folder):
    """Have this process measure its first step, leave RANK.json, and end."""
    layers = []  # as they are in the forward pass, where FSDP has gathered them
    gpus = range(torch.cuda.device_count())

    def computed(layer, *_):
        for gpu in () if layers else gpus:  # what setting up took does not count
            torch.cuda.reset_peak_memory_stats(gpu)
        layers.append(local_bytes(layer.parameters(recurse=False)))

    def stepped(optimizer, *_):
        done.remove()
        held = [p for group in optimizer.param_groups for p in group["params"]]
        held = [p for p in held if p.grad is not None]
        found = [local_bytes(held), local_bytes([p.grad for p in held])]
        peak = sum(map(torch.cuda.max_memory_allocated, gpus))
        for other in torch.optim.SGD(held, lr=0, momentum=0.9), torch.optim.Adam(held):
            other.step()
            kept = [t for state in other.state.values() for t in state.values()]
            found.append(local_bytes(kept))
        found = dict(zip(KINDS, found, strict=True), layer=max(layers), peak=peak)
        (folder / f"{rank}.json").write_text(json.dumps(found))
        if dist.is_initialized():
            dist.barrier()  # nobody leaves while others still receive from it
        raise SystemExit

    register_module_forward_hook(computed)
    done = register_optimizer_step_post_hook(stepped)
