"""Every attribute of PyTorch and Python that the lab replaces in a rank, and why.

Where a public hook sees as much, the lab takes that instead: of an optimizer's steps,
of files that Python opens or renames, of tensor functions, of DDP's reductions.
"""

import functools
from pkgutil import resolve_name

COLLECTIVES = ["barrier", "monitored_barrier", "all_reduce", "broadcast", "reduce"]
COLLECTIVES += ["all_gather", "all_gather_object", "broadcast_object_list"]

REPLACED = {  # "module:attribute" -> the first parameters, as relied on; why
    "torch.utils.data:DataLoader.__iter__": ("self", "the images that a rank takes"),
    "torch:save": ("obj f", "a file that C++ writes: no audit event tells of it"),
    "torch.nn.parallel:DistributedDataParallel.__init__": ("self", "is there DDP?"),
    **{f"torch.distributed:{n}": ("", "who waits for whom") for n in COLLECTIVES},
    # by tools.lab.standin alone:
    "torch.cuda:is_available": ("", "there seems to be a GPU"),
    "torch.cuda:device_count": ("", "there seem to be so many"),
    "torch.cuda:current_device": ("", "would start CUDA"),
    "torch.cuda:set_device": ("device", "would start CUDA"),
    "torch.cuda:synchronize": ("device", "waits for the queue that is played"),
    "torch.cuda:Event": ("enable_timing", "tells the time of that queue"),
    "time:perf_counter": ("", "what a script measures is not this machine's speed"),
    "time:monotonic": ("", "the same"),
    "time:time": ("", "the same"),
    "torch.nn:DataParallel": ("module", "runs two copies only on two GPUs"),
    "torch.nn.parallel:DataParallel": ("module", "its other name"),
}


def replace(name, substitute):
    """Put `substitute`, class or function, in the place of an attribute of REPLACED.

    A function is called with the original before the arguments. Raises KeyError for a
    name that is not in the table, AttributeError for one that PyTorch does not have.
    """
    REPLACED[name]
    owner, _, attribute = name.replace(":", ".").rpartition(".")
    owner = resolve_name(owner)
    original = getattr(owner, attribute)

    @functools.wraps(original)
    def called(*args, **options):
        return substitute(original, *args, **options)

    setattr(owner, attribute, substitute if isinstance(substitute, type) else called)
