"""Facts about a network for the log: its weights and buffers."""

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from onecurve.set_up.cpu_for_cuda import UnsyncedBatchNorm
from onecurve.watch.events import bare, digest
from onecurve.watch.identities import own_number


def has_own_statistics(module):
    """Return whether a module normalizes with its own rank's batch statistics."""
    synced = isinstance(module, torch.nn.SyncBatchNorm | UnsyncedBatchNorm)
    return isinstance(module, _BatchNorm) and module.training and not synced


def is_replicated(parameter):
    """Return whether each rank has the whole parameter."""
    is_part = getattr(parameter, "_fsdp_flattened", False)  # by the first FSDP
    placements = getattr(parameter, "placements", ())
    sizes = parameter.device_mesh.shape if placements else ()
    pairs = zip(placements, sizes, strict=True)
    return not is_part and all(one.is_replicate() or size == 1 for one, size in pairs)


def weights_of(network, wanted, name_of=lambda number, name: name):
    """Return {name: digest} of wanted parameters that every rank has in full."""
    found = {}
    for name, parameter in network.named_parameters():
        own = isinstance(parameter, torch.nn.Parameter)  # not torch.func's tensors
        if own and wanted(parameter) and is_replicated(parameter):
            found[name_of(own_number(parameter), bare(name))] = digest(parameter)
    return found


def state_of(network):
    """Return digests of a network's weights and buffers, named without wrappers."""
    named = [] if UnsyncedBatchNorm.used else network.named_buffers()
    buffers = {bare(name): digest(buffer) for name, buffer in named}
    return {"weights": weights_of(network, lambda parameter: True), "buffers": buffers}
