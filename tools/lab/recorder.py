"""A rank of the lab: the judge's recorder, and what exercises ask for besides."""

import resource
from inspect import signature

import torch

from onecurve.events import Log, local_part
from onecurve.files import Files
from onecurve.hooks import Hooks
from onecurve.replace import replace
from tools.lab import fake_cuda

WORKERS = ["num_workers", "prefetch_factor", "persistent_workers", "timeout"]
WORKERS += ["multiprocessing_context"]
FLOATS = {torch.float32, torch.float64}
CLASSES = 10  # of digits, and so the scores of the last layer
LARGEST = 2**28  # bytes of a file: a script that prints for ever must not fill the disk


def state_of(optimizer):
    """Return how many numbers of state an optimizer has on this rank."""
    held = 0
    for state in optimizer.state.values():
        # None: another rank's, in ZeroRedundancyOptimizer
        for value in (state or {}).values():
            if isinstance(value, torch.Tensor):
                held += local_part(value).numel()
    return held


def with_dtype_of_weight(module, args):
    """Return a module's arguments, the first as float64 where its weight is.

    The lab runs a script in float64, in which its own `.float()` is an error.
    """
    weight = module._parameters.get("weight")
    if weight is None or not args or not isinstance(args[0], torch.Tensor):
        return args
    if {args[0].dtype, weight.dtype} == FLOATS:
        return args[0].to(weight.dtype), *args[1:]
    return args


class Recorder(Hooks):
    """Hooks of a whole run, which write down besides what the exercises ask for.

    Nothing that the script computes is changed by it, but for `with_dtype_of_weight`,
    data loaders' workers and what `reduce` leaves undefined.
    """

    def __init__(self, rank, log):
        super().__init__(log)
        self.rank = rank
        self.pending = {}  # collectives that nobody has waited for

    def install(self):
        """Put the methods below in place."""
        super().install()
        for name in "wait", "get_future", "is_completed":
            replace(f"torch.distributed:Work.{name}", self.wait)

    def before_step(self, optimizer, args, kwargs):
        """Before a step of an optimizer, also of one that another one calls."""
        self.log.write("state", numbers=state_of(optimizer), stepped=False)
        super().before_step(optimizer, args, kwargs)

    def after_step(self, optimizer, args, kwargs):
        """After a step of an optimizer, also of one that another one calls."""
        self.log.write("state", numbers=state_of(optimizer), stepped=True)
        super().after_step(optimizer, args, kwargs)

    def module_call(self, original, module, *args, **kwargs):
        """Around a call of a module; the last layer makes the scores of ten digits."""
        args = with_dtype_of_weight(module, args)
        if args and getattr(module, "out_features", None) == CLASSES:
            self.units(args[0])
        return super().module_call(original, module, *args, **kwargs)

    def units(self, hidden):
        """Before the layer that makes the scores: which units of each image are 0."""
        with torch._C.DisableTorchFunction():  # unseen by the fake GPUs
            zero = local_part(hidden) == 0
            grad = torch.is_grad_enabled()
            zeros = len(zero.nonzero())
            self.log.write("units", grad=grad, zeros=zeros, count=zero.numel())

    def loader_init(self, original, loader, *args, **options):
        """Around the constructor of a DataLoader: without workers, which cost time."""
        given = signature(original).bind(loader, *args, **options).arguments
        for name in WORKERS:
            given.pop(name, None)
        super().loader_init(original, given.pop("self"), **given)

    def collective_ends(self, name, given, result):
        """When a collective returns: an asynchronous one is not over."""
        if isinstance(result, torch.distributed.Work):
            # the result is kept, or another may get its id
            self.pending[id(result)] = name, given, result
        else:
            self.collective_is_over(name, given)

    def wait(self, original, work, *args, **options):
        """Around the ways to wait for an asynchronous collective: it is over.

        To take its future, or to ask until it is completed, is to wait as well.
        """
        result = original(work, *args, **options)
        if result and id(work) in self.pending:
            name, given, _ = self.pending.pop(id(work))
            self.collective_is_over(name, given)
        return result

    def collective_is_over(self, name, given):
        """When this rank is through with a collective, given its arguments by name."""
        self.log.write("collective", name=name)
        receivers = given.get("dst"), given.get("group_dst")
        if name == "reduce" and self.rank not in receivers:
            given["tensor"].detach().fill_(-1)  # undefined: Gloo leaves partial sums
            self.log.write("undefined")


def record(rank, folder, path, fake=""):
    """Have this process write what it does to folder/rankN, until the script ends.

    `path` is the script's. `fake` names a function of tools.lab.fake_cuda, called with
    a function that writes an event.
    """
    log = Log(folder / f"rank{rank}", [path])
    recorder = Recorder(rank, log)
    recorder.install()
    Files(None, log).install()
    if fake:
        getattr(fake_cuda, fake)(
            lambda kind, **facts: log.write(f"gpu {kind}", **facts)
        )
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))
    return recorder.script_ends
