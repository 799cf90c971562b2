"""nn.DataParallel and torch.distributed on fake GPUs."""

import os

import torch
import torch.distributed as dist

from onecurve.api import replace
from tools.lab.fake_cuda.devices import STATE, current_device, device_name
from tools.lab.fake_cuda.placement import get_place, move

# NCCL 2.30's error for two ranks on a GPU, PyTorch's for a tensor on another GPU.
SHARED = (
    "Multiple Ranks are using the same GPU/Partition. "
    "Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration."
)
BOUND = "ProcessGroupNCCL is bound to device {} but an operation was issued on {}"


class Scatter:
    @staticmethod
    def apply(devices, chunk_sizes, dim, tensor):
        parts = tensor.chunk(len(devices), dim)
        pairs = zip(parts, devices, strict=False)
        return tuple(move(part, device_name(device)) for part, device in pairs)


def gather(_, parts, dim=0, destination=None):
    place = device_name(destination)
    return torch.cat([move(part, place) for part in parts], dim)


def broadcast(_, tensors, devices, buffer_size=None):
    """Return a list of copies for each device; the first gets the originals."""
    copies = []
    for device in devices:
        copies.append([move(tensor, device_name(device)) for tensor in tensors])
    return copies


def parallel_apply(_, replicas, inputs, kwargs, devices):
    """Call the replicas in turn, since the modes of `operations` don't see threads."""
    devices = [device_name(device) for device in devices]
    STATE.log("replicas", devices=devices, training=replicas[0].training)
    outputs = []
    for n, replica in enumerate(replicas):
        with current_device(devices[n]):
            outputs.append(replica(*inputs[n], **kwargs[n]))
    return outputs


def init_process_group(original, backend=None, device_id=None, **options):
    """Use gloo, and if the script asks for "nccl", bind this process to a GPU.

    As in PyTorch 2.15, this is `device_id`, or LOCAL_RANK modulo the number of GPUs.
    Raises RuntimeError if another rank on this machine already uses it.
    """
    original("gloo", **options)
    if backend != "nccl":
        return
    if device_id is None:
        device_id = int(os.environ["LOCAL_RANK"]) % STATE.count
    place = f"{STATE.bind(device_id)} of machine {os.environ.get('GROUP_RANK')}"
    store = dist.distributed_c10d._get_default_store()
    owner = store.compare_set(place, "", str(dist.get_rank()))  # the first to claim it
    if int(owner) != dist.get_rank():
        raise RuntimeError(f"Failed to initialize NCCL communicator: {SHARED}")


def check_collective(given):
    """Raise RuntimeError like NCCL for a collective's tensors on a wrong device."""
    for place in map(get_place, given):
        if STATE.nccl and place == "cpu":
            raise RuntimeError("No backend type associated with device type cpu")
        if STATE.nccl and place not in (None, STATE.nccl):
            raise RuntimeError(BOUND.format(STATE.nccl, place))


def object_device(original, group=None):
    return "cuda" if STATE.nccl else original(group)


def install():
    replace("torch.cuda.nccl:is_available", lambda _, tensors: False)
    replace("torch.nn.parallel.data_parallel:_check_balance", lambda _, devices: None)
    replace("torch.nn.parallel.data_parallel:parallel_apply", parallel_apply)
    replace("torch.nn.parallel.scatter_gather:Scatter", Scatter)
    replace("torch.nn.parallel._functions:Scatter", Scatter)
    replace("torch.nn.parallel.comm:gather", gather)
    replace("torch.nn.parallel.comm:broadcast_coalesced", broadcast)
    replace("torch.distributed:init_process_group", init_process_group)
    replace("torch.distributed.distributed_c10d:_get_object_coll_device", object_device)
