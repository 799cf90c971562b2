"""Measure each rank's memory and messages: `make memory ARGS="--hidden 2048"`.

Runs each stage for two steps in float32, except those that only add checkpoints, then
variants in bfloat16. Hooks count the bytes of weights, of Adam's averages for them, of
the largest layer while it computes, of tensors saved for the backward pass (at their
peak), and of messages from the first step to the second. Messages are counted in c10d,
below all of PyTorch's communication APIs. DDP's copy of the gradients in its buckets is
not counted. GPUS, NPROC and ARGS work as in tools/bench/runs.py.
"""

import json
import tempfile
from pathlib import Path
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode

from tools.bench import runs
from tools.bench.tables import aligned
from tools.run.edit import variant_stage, variant_text
from tools.run.stages import MNIST, RESUMES, TRANSFORMER

OUTPUT_FIRST = "allgather", "allgatherbase", "reducescatter", "reducescatterbase"
OUTPUT_FIRST += ("alltoallbase",)  # their first argument is the output
MEASURED = [stage for stage in MNIST.values() if stage not in RESUMES]
ROUNDED = "autocast", "bf16_gradients", "bf16_weights", "mp_policy"  # in bfloat16
IMAGES = 128, 10  # for two steps, for evaluation
OF_SECOND_CURVE = "--steps 2 --every 2 --dtype float32"
SHOWN = ["weights", "optimizer", "saved", "sent"]  # on the pages
HEADINGS = ["script", "ranks", *SHOWN, "sent, by formula"]
# Sent per rank per step: W ranks, P bytes of weights, A of a batch's activations.
FORMULAS = {
    "14_data_parallel": "2 P (W-1)/W",
    "zero_1": "3 P (W-1)/W",
    "fsdp": "3 P (W-1)/W, and less for the ends",
    "15_sequence_parallel": "8 A (W-1)/W per block, 4 A (W-1)/W at the ends, a rest",
    "sequence_by_hand": "8 A (W-1)/W per block, and a rest",
    "16_pipeline_1f1b": "A to each neighbor",
    "gpipe": "A to each neighbor",
    "gathered_keys": "4 A (W-1)/W per block + 2 P (W-1)/W",
    "recomputed": "6 A (W-1)/W per block + 2 P (W-1)/W",
    "17_context_parallel": "4 A (W-1)/W per block + 2 P (W-1)/W",
    "19_expert_parallel": "4 all-to-alls per block + stage 14's without the experts",
    "21_lost_rank": "2 P (W-1)/W",
    "20_grid": "4 A/2 (2-1)/2 per block in a row + FSDP's 3 P (W-1)/W, roughly",
}


def local_bytes(tensors):
    """Return the bytes of the tensors, or of their shards, in this process."""
    size = 0
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        size += local.nbytes
    return size


class Saved:
    """Count the bytes saved for the backward pass, and their peak."""

    def __init__(self):
        self.kept = WeakSet()  # drops tensors that are no longer needed
        self.most = 0

    def pack(self, tensor):
        """Count a saved tensor; return its Kept."""
        kept = Kept(tensor)
        self.kept.add(kept)
        sizes = {one.number: one.size for one in self.kept}  # a storage counts once
        self.most = max(self.most, sum(sizes.values()))
        return kept


class Kept:
    """A saved tensor and its storage."""

    def __init__(self, tensor):
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        storage = local.untyped_storage()
        self.tensor = tensor
        self.number = storage._cdata
        self.size = storage.nbytes()


class Sent(TorchDispatchMode):
    """Add up the bytes that this rank sends, assuming ring algorithms."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # called again with this rank's shard
        if "c10d" in func._schema.name:
            self.bytes += sent_by(func._schema, args)
        return func(*args, **(kwargs or {}))


def group_of(schema, args):
    """Return the process group among the arguments of a c10d call."""
    given = {one.name: arg for one, arg in zip(schema.arguments, args, strict=False)}
    if "group_name" in given:
        return dist.distributed_c10d._resolve_process_group(given["group_name"])
    return dist.ProcessGroup.unbox(given["process_group"])


def sent_by(schema, args):
    """Return how many bytes a rank sends in a c10d call."""
    kind = schema.name.split("::")[1].replace("_", "")
    if kind.startswith(("wait", "recv", "barrier", "wrap")):
        return 0
    group = group_of(schema, args)
    given = args[1 if kind in OUTPUT_FIRST else 0]
    if kind == "reducescatter":  # a list for each output
        (given,) = given
    tensors = given if isinstance(given, list | tuple) else [given]
    size = sum(tensor.nbytes for tensor in tensors)
    if kind == "send":
        return size
    if kind == "broadcast":
        return size if args[2] == group.rank() else 0
    others = group.size() - 1
    if kind.startswith("allgather"):
        return size * others
    if kind.startswith("reducescatter"):
        return size * others // group.size()
    if kind.startswith("allreduce"):
        return 2 * size * others // group.size()
    if kind.startswith("alltoall"):
        count = len(tensors[0])
        shares = args[4] or [count // group.size()] * group.size()
        return size * (count - shares[group.rank()]) // count
    raise ValueError(f"cannot count the bytes that {schema.name} sends")


def averages(optimizer, weights):
    """Return the bytes of Adam's averages, or of those that Adam would have."""
    found = []
    for state in getattr(optimizer, "optim", optimizer).state.values():  # ZeRO's, too
        found += [state["exp_avg"], state["exp_avg_sq"]]
    return local_bytes(found) or 2 * local_bytes(weights)


def measure_two_steps(rank, folder):
    """Install hooks that measure two steps and write RANK.json."""
    saved, sent = Saved(), Sent()
    hooks = torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda one: one.tensor)
    hooks.__enter__()
    inside, steps = [], []
    layers = []  # bytes in the forward pass, after FSDP's all-gather

    def after_layer(layer, *_):
        layers.append(local_bytes(layer.parameters(recurse=False)))

    def before_step(optimizer, *_):
        inside.append(optimizer)

    def after_step(optimizer, *_):
        inside.pop()
        if inside:  # AdamW's step within ZeRO's
            return
        steps.append(optimizer)
        if len(steps) == 1:
            sent.__enter__()
        if len(steps) != 2:
            return
        sent.__exit__(None, None, None)
        hooks.__exit__(None, None, None)
        weights = optimizer.param_groups[0]["params"]
        weights = [weight for weight in weights if weight.grad is not None]
        found = {
            "weights": local_bytes(weights),
            "optimizer": averages(optimizer, weights),
            "layer": max(layers),
            "saved": saved.most,
            "sent": sent.bytes,
        }
        (folder / f"{rank}.json").write_text(json.dumps(found))

    register_module_forward_hook(after_layer)
    register_optimizer_step_pre_hook(before_step)
    register_optimizer_step_post_hook(after_step)


def measure(name):
    """Return what each rank of a stage or variant stores and sends: [{kind: bytes}]."""
    stage = variant_stage(name)
    is_second = stage in TRANSFORMER.values()
    images, flags = (None, OF_SECOND_CURVE) if is_second else (IMAGES, "--epochs 1")
    with tempfile.TemporaryDirectory() as folder:
        prepare = measure_two_steps, Path(folder)
        path = Path(folder) / "script.py"
        path.write_text(variant_text(name))
        number = runs.run_stage(stage, images, flags, prepare, True, path)
        files = [Path(folder) / f"{rank}.json" for rank in range(number)]
        return [json.loads(file.read_text()) for file in files]


def main():
    """Print each rank's memory and messages in a step of every stage."""
    print("counting bytes per rank in a step of every stage ...", flush=True)
    rows = []
    for stage in [*MEASURED, *ROUNDED, *TRANSFORMER.values()]:
        for rank, sizes in enumerate(measure(stage)):
            heads = ["stage", "rank", *sizes]
            rows.append([stage, rank, *[f"{size:,}" for size in sizes.values()]])
    print(aligned([heads, *rows]))
