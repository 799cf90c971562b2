"""What is written down of a network: weights, buffers, and what is at work in it."""

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from onecurve.events import bare, digest
from onecurve.pretend import UnsyncedBatchNorm


def types_of(module):
    """Return the types of a module's parameters by name."""
    return {name: parameter.dtype for name, parameter in module.named_parameters()}


def is_at_work(module):
    """Return whether a module does in training what it does not in an evaluation."""
    drops = isinstance(module, _DropoutNd) and module.p > 0
    norms = isinstance(module, _BatchNorm) and module.track_running_stats
    return module.training and (drops or norms)


def has_own_statistics(module):
    """Return whether a module normalizes by the statistics of one rank's batch."""
    synced = isinstance(module, torch.nn.SyncBatchNorm | UnsyncedBatchNorm)
    return isinstance(module, _BatchNorm) and module.training and not synced


def is_replicated(parameter):
    """Return whether each rank has the whole parameter."""
    placements = getattr(parameter, "placements", ())
    sizes = parameter.device_mesh.shape if placements else ()
    pairs = zip(placements, sizes, strict=True)
    return all(placement.is_replicate() or size == 1 for placement, size in pairs)


def weights_of(network, wanted):
    """Return digests of the weights that all ranks have whole, and that are wanted.

    Not of what torch.func.functional_call puts in their place.
    """
    found = {}
    for name, parameter in network.named_parameters():
        own = isinstance(parameter, torch.nn.Parameter)
        if own and wanted(parameter) and is_replicated(parameter):
            found[bare(name)] = digest(parameter)
    return found


def state_of(network):
    """Return digests of a network's weights and buffers, by names without a wrapper."""
    named = [] if UnsyncedBatchNorm.used else network.named_buffers()
    buffers = {bare(name): digest(buffer) for name, buffer in named}
    return {"weights": weights_of(network, lambda parameter: True), "buffers": buffers}
