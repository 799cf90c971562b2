"""Every attribute of PyTorch and Python that the lab replaces in a rank, and why.

The public names of torch.cuda and torch.accelerator are in tools.lab.fake_cuda.
Where a public hook sees as much, the lab takes that instead: of an optimizer's steps,
of files that Python opens or renames, of tensor functions, of DDP's reductions.
"""

import functools
from pkgutil import resolve_name

COLLECTIVES = ["barrier", "monitored_barrier", "all_reduce", "broadcast", "reduce"]
COLLECTIVES += ["all_gather", "all_gather_object", "broadcast_object_list"]
COLLECTIVES += ["all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor"]
COLLECTIVES += ["gather", "scatter", "gather_object", "scatter_object_list"]
COLLECTIVES += ["all_to_all", "all_to_all_single", "send", "recv", "isend", "irecv"]

CLOCKS = ["perf_counter", "monotonic", "time", "process_time"]
CLOCKS += [f"{name}_ns" for name in CLOCKS]

REPLACED = {  # "module:attribute" -> the first parameters, as relied on; why
    "torch.nn:Module.__call__": ("self", "hooks for all modules get no keywords"),
    "torch.utils.data:DataLoader.__init__": ("self dataset", "no workers: they cost"),
    "torch:Tensor.backward": ("self", "with DDP, ranks meet there"),
    "torch.distributed:Work.wait": ("", "an asynchronous collective is over"),
    "torch:save": ("obj f", "a file that C++ writes: no audit event tells of it"),
    "torch.nn.parallel:DistributedDataParallel.__init__": ("self", "is there DDP?"),
    "torch.nn.parallel:DistributedDataParallel.forward": ("self", "is it used?"),
    "torch.nn.parallel:DataParallel.forward": ("self", "the same"),
    **{f"torch.distributed:{n}": ("", "who waits for whom") for n in COLLECTIVES},
    # by tools.lab.fake_cuda alone:
    "torch.cuda:_lazy_init": ("", "what C++ calls first; says what is missing"),
    "torch.cuda.nccl:is_available": ("tensors", "nn.DataParallel adds without it"),
    **{f"time:{n}": ("", "a script does not measure this machine") for n in CLOCKS},
    "time:sleep": ("", "nobody knows how long another rank takes"),
    "timeit:default_timer": ("", "the same"),
    "datetime:datetime": ("", "the same"),
    "torch:set_default_device": ("device", "refused"),
    "torch:Tensor.device": ("", "where it seems to be"),
    "torch:Tensor.is_cuda": ("", "the same"),
    "torch:Tensor.get_device": ("", "the same"),
    "torch:Tensor.to": ("", "a copy there"),
    "torch:Tensor.cpu": ("", "the same"),
    "torch:Tensor.cuda": ("", "the same"),
    "torch:Tensor.pin_memory": ("", "would start CUDA"),
    "torch:Tensor.tolist": ("", "waits for the GPU"),
    "torch.nn.parallel:parallel_apply": (
        "modules inputs kwargs_tup devices",
        "threads",
    ),
    "torch.nn.parallel.data_parallel:parallel_apply": ("modules", "nn.DataParallel's"),
    "torch.nn.parallel.scatter_gather:Scatter": ("", "CUDA's part"),
    "torch.nn.parallel._functions:Scatter": ("", "the same, backward"),
    "torch.nn.parallel.comm:gather": ("tensors dim destination", "the same"),
    "torch.nn.parallel.comm:broadcast_coalesced": ("tensors devices", "the same"),
    "torch.distributed:init_process_group": ("backend", "NCCL needs GPUs"),
    "torch.distributed.distributed_c10d:_get_object_coll_device": ("group", "the same"),
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
    if isinstance(substitute, type | property):
        return setattr(owner, attribute, substitute)

    @functools.wraps(original)
    def called(*args, **options):
        return substitute(original, *args, **options)

    setattr(owner, attribute, called)
