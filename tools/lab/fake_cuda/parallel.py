"""What nn.DataParallel and torch.distributed do with GPUs, done with fake ones."""

import torch

from tools.lab.fake_cuda.placement import move
from tools.lab.fake_cuda.state import STATE, current_device, device_name
from tools.lab.patches import replace


def scatter(_, tensor, devices, chunk_sizes=None, dim=0, streams=None):
    """Stand in for comm.scatter(): the parts of a tensor, one on each device."""
    parts = tensor.chunk(len(devices), dim)
    pairs = zip(parts, devices, strict=False)
    return tuple(move(part, device_name(device)) for part, device in pairs)


def gather(_, parts, dim=0, destination=None):
    """Stand in for comm.gather(): the parts joined on a device."""
    place = device_name(destination)
    return torch.cat([move(part, place) for part in parts], dim)


def broadcast(_, tensors, devices, buffer_size=None):
    """Stand in for comm.broadcast_coalesced(): the first device has the originals."""
    copies = []
    for device in devices:
        copies.append([move(tensor, device_name(device)) for tensor in tensors])
    return copies


def parallel_apply(_, replicas, inputs, kwargs=None, devices=None):
    """Stand in for parallel_apply(): one replica after the other.

    In its threads the modes of `operations` would see nothing.
    """
    kwargs = kwargs or [{}] * len(inputs)
    devices = [device_name(device) for device in devices or range(len(inputs))]
    STATE.log("replicas", devices=devices, training=replicas[0].training)
    outputs = []
    for n, replica in enumerate(replicas):
        given = inputs[n] if isinstance(inputs[n], list | tuple) else [inputs[n]]
        with current_device(devices[n]):
            outputs.append(replica(*given, **kwargs[n]))
    return outputs


def init_process_group(original, backend=None, **options):
    """Begin with gloo in place of NCCL; `operations` refuses what NCCL does."""
    STATE.nccl = backend == "nccl"
    original("gloo", **options)


def object_device(original, group=None):
    """Stand in for _get_object_coll_device(): where objects are sent from."""
    return "cuda" if STATE.nccl else original(group)


def install():
    """Replace what needs CUDA or NCCL."""
    replace("torch.cuda.nccl:is_available", lambda _, tensors: False)
    replace("torch.nn.parallel:parallel_apply", parallel_apply)
    replace("torch.nn.parallel.data_parallel:parallel_apply", parallel_apply)
    replace("torch.nn.parallel.comm:scatter", scatter)
    replace("torch.nn.parallel.comm:gather", gather)
    replace("torch.nn.parallel.comm:broadcast_coalesced", broadcast)
    replace("torch.distributed:init_process_group", init_process_group)
    c10d = "torch.distributed.distributed_c10d"
    replace(f"{c10d}:_get_object_coll_device", object_device)
