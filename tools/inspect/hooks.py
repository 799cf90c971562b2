"""What is written down of a run as it is: the events that the rules read."""

import hashlib
import random
from itertools import islice

import numpy
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import IterableDataset, Subset, get_worker_info

from tools.inspect.cpu import UnsyncedBatchNorm
from tools.watch.events import digest, local_part
from tools.watch.replace import replace

MOST_INDICES = 2_000_000  # of an epoch that are looked at
LOADER_BATCHES = 6  # of an evaluation
LOADER_STEPS = 4  # of an epoch
TRAINING_EPOCHS = 2
MOST_STEPS = 24  # of a script that has no epochs


def generator_states():
    """Return a digest of the state of each of Python's, NumPy's and PyTorch's."""
    return {
        "random": digest_of(random.getstate()),
        "numpy": digest_of(*numpy.random.get_state()[2:], legacy_state()),
        "torch": digest(torch.get_rng_state()),
    }


def legacy_state():
    """Return the numbers of NumPy's global generator as bytes."""
    return numpy.random.get_state()[1].tobytes()


def digest_of(*values):
    """Return a short digest of values by their texts; the same in all processes."""
    return hashlib.sha256(repr(values).encode()).hexdigest()[:12]


def rows_of(value, found):
    """Add the digests of each tensor's rows in a batch to `found`, a list of lists."""
    if isinstance(value, torch.Tensor):
        if value.dim() and value.numel():
            found.append([digest(row) for row in value])
    elif isinstance(value, dict):
        for one in value.values():
            rows_of(one, found)
    elif isinstance(value, list | tuple):
        for one in value:
            rows_of(one, found)


def rows(value):
    """Return a digest of each row of the first tensor in a batch that has rows."""
    found = []
    rows_of(value, found)
    return found[0] if found else []


def base_of(dataset, indices):
    """Return the data set that subsets are of, and the indices in it."""
    while isinstance(dataset, Subset):
        indices = [dataset.indices[index] for index in indices]
        dataset = dataset.dataset
    return dataset, [int(index) for index in indices]


def flat(indices):
    """Return the integers in what a sampler gives, however deep."""
    if getattr(indices, "ndim", None) == 0:
        return [int(indices)]
    if isinstance(indices, list | tuple | torch.Tensor | numpy.ndarray):
        return [number for one in indices for number in flat(one)]
    return [int(indices)]


def identity(dataset):
    """Return a digest of some samples of a map-style data set; the generators stay."""
    before = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    try:
        found = []
        for index in sorted({0, len(dataset) // 2, len(dataset) - 1}):
            rows_of(torch.utils.data.default_convert(dataset[index]), found)
        return digest_of(found)
    except Exception:  # noqa: BLE001, whatever a data set makes of it
        return None
    finally:
        random.setstate(before[0])
        numpy.random.set_state(before[1])
        torch.set_rng_state(before[2])


def named(loader):
    """Return which loader it is, and which of its epochs this is."""
    return {"line": loader.line, "made": loader.made, "number": loader.readings}


class Listed:
    """A sampler whose indices of an epoch are known before the first is taken."""

    def __init__(self, sampler, told):
        self.sampler = sampler
        self.told = told  # called with the list

    def __len__(self):
        return len(self.sampler)

    def __iter__(self):
        taken = []
        numbers = 0
        iterator = iter(self.sampler)
        for one in iterator:
            taken.append(one)
            numbers += len(one) if hasattr(one, "__len__") else 1
            if numbers > MOST_INDICES:
                break
        self.told(taken, complete=numbers <= MOST_INDICES)
        yield from taken
        yield from iterator


class Hooks:
    """Writes down what a rank does; ends it after some epochs or steps.

    `end` is called, without arguments, when enough has been seen.
    """

    def __init__(self, log, end):
        self.log = log
        self.end = end
        self.ddps = []
        self.depth = 0  # of calls of modules
        self.stepping = 0  # an optimizer may call the step of another
        self.steps = 0
        self.backwards = 0
        self.in_backward = False
        self.optimizers = {}
        self.names = {}  # id of a parameter -> its name
        self.identities = {}  # id of a data set -> (digest, the data set)
        self.made = {}  # line -> how many loaders were made there
        self.trained = {}  # line -> how many epochs trained with loaders made there

    def install(self):
        """Put the methods below in place."""
        loading = "torch.utils.data.dataloader"
        replace("torch.utils.data:DataLoader._index_sampler", self.listing_sampler())
        replace("torch.utils.data:DataLoader.__init__", self.loader_init)
        replace(f"{loading}:_BaseDataLoaderIter.__init__", self.first_reading)
        replace(f"{loading}:_BaseDataLoaderIter._reset", self.next_reading)
        replace(f"{loading}:_BaseDataLoaderIter.__next__", self.next_batch)
        fetchers = "torch.utils.data._utils.fetch"
        replace(f"{fetchers}:_MapDatasetFetcher.fetch", self.fetch)
        replace(f"{fetchers}:_IterableDatasetFetcher.fetch", self.fetch)
        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(self.after_step)
        replace("torch.nn:Module.__call__", self.module_call)
        replace("torch:Tensor.backward", self.backward)
        ddp = "torch.nn.parallel:DistributedDataParallel"
        replace(f"{ddp}.__init__", self.ddp_init)
        replace(f"{ddp}.forward", self.ddp_forward)
        replace("torch.optim:Optimizer.zero_grad", self.zero_grad)
        replace("torch.nn:Module.zero_grad", self.module_zero_grad)
        replace("torch.distributed:init_process_group", self.join)
        parallel = "torch.distributed.tensor.parallel"
        replace(f"{parallel}:parallelize_module", self.split_model)
        for name in "send", "recv", "isend", "irecv":
            replace(f"torch.distributed:{name}", self.message)
        for name in "clip_grad_norm_", "clip_grad_value_":
            replace(f"torch.nn.utils:{name}", self.clip)

    def join(self, original, *args, **options):
        """Around init_process_group."""
        self.log.write("joined", line=self.log.line())
        return original(*args, **options)

    def split_model(self, original, *args, **options):
        """Around what splits a model among ranks, which then share their samples."""
        self.log.write("split", line=self.log.line())
        return original(*args, **options)

    def message(self, original, *args, **options):
        """Around a message to one rank: a pipeline's ranks have other weights, too."""
        self.log.write("split", line=self.log.line())
        self.log.write("pipeline", line=self.log.line())
        return original(*args, **options)

    # The data

    def listing_sampler(self):
        """Return a property in place of the loaders' `_index_sampler`."""
        original = torch.utils.data.DataLoader._index_sampler.fget

        def get(loader):
            sampler = original(loader)
            if isinstance(loader.dataset, IterableDataset):
                return sampler
            return Listed(
                sampler, lambda taken, complete: self.taken(loader, taken, complete)
            )

        return property(get)

    def taken(self, loader, taken, complete):
        """Write down the indices of an epoch, one list for each batch."""
        sizes = [len(flat(one)) for one in taken]
        dataset, indices = base_of(loader.dataset, flat(taken))
        key = id(dataset)
        if key not in self.identities:
            self.identities[key] = identity(dataset), dataset
        sampler = getattr(loader, "sampler", None)
        self.log.write(
            "indices",
            **named(loader),
            size=len(dataset),
            identity=self.identities[key][0],
            indices=indices,
            sizes=sizes,
            complete=complete,
            replacement=bool(getattr(sampler, "replacement", False)),
            sampler=type(sampler).__name__,
        )

    def loader_init(self, original, loader, *args, **options):
        """Around the constructor of a loader."""
        original(loader, *args, **options)
        loader.line = self.log.line()
        self.made[loader.line] = self.made.get(loader.line, 0) + 1
        loader.made = self.made[loader.line]
        loader.readings = 0

    def first_reading(self, original, reading, loader):
        """Around the constructor of what iterates over a loader."""
        self.reading_begins(reading, loader)
        original(reading, loader)

    def next_reading(self, original, reading, loader, first_iter=False):
        """Around a new epoch of what stays when workers do."""
        if not first_iter:
            self.reading_begins(reading, loader)
        original(reading, loader, first_iter)

    def reading_begins(self, reading, loader):
        """Before an epoch of a loader; ends all where enough epochs were trained."""
        if self.trained.get(loader.line, 0) >= TRAINING_EPOCHS:
            self.end()
        loader.readings += 1
        reading.loader = loader
        reading.batches = 0
        reading.steps_before = self.steps
        reading.backwards_before = self.backwards
        self.log.write(
            "reading",
            **named(loader),
            stream=isinstance(loader.dataset, IterableDataset),
            grad=torch.is_grad_enabled(),
        )

    def next_batch(self, original, reading):
        """Around the reading of a batch; ends an epoch after some steps."""
        loader = reading.loader
        steps = self.steps - reading.steps_before
        trains = self.backwards > reading.backwards_before
        if steps >= LOADER_STEPS or (not trains and reading.batches >= LOADER_BATCHES):
            self.reading_ends(reading, cut=True)
            raise StopIteration
        try:
            batch = original(reading)
        except StopIteration:
            self.reading_ends(reading, cut=False)
            raise
        reading.batches += 1
        self.log.write(
            "batch",
            **named(loader),
            batch=reading.batches,
            rows=rows(batch),
        )
        return batch

    def reading_ends(self, reading, cut):
        """Write down the end of an epoch; after some of training it is enough."""
        loader = reading.loader
        trained = self.steps > reading.steps_before
        if trained:
            self.trained[loader.line] = self.trained.get(loader.line, 0) + 1
        self.log.write(
            "read",
            **named(loader),
            batches=reading.batches,
            trained=trained,
            cut=cut,
        )

    def fetch(self, original, fetcher, indices):
        """Around the reading of samples, in this process or in a worker."""
        before = generator_states()
        batch = original(fetcher, indices)
        after = generator_states()
        drawn = {name: before[name] for name in before if before[name] != after[name]}
        worker = get_worker_info()
        self.log.write(
            "fetch",
            worker=worker.id if worker else None,
            drawn=drawn,
            indices=flat(indices) if not hasattr(fetcher, "dataset_iter") else [],
        )
        return batch

    # The network

    def module_call(self, original, module, *args, **kwargs):
        """Around a call of a module; the outermost one is the network's."""
        if self.depth or not any(True for _ in islice(module.parameters(), 1)):
            return original(module, *args, **kwargs)
        self.depth += 1
        self.learn_names(module)
        inside = any(ddp.module is module for ddp in self.ddps)
        grad = torch.is_grad_enabled()
        before = generator_states()
        try:
            return original(module, *args, **kwargs)
        finally:
            self.depth -= 1
            after = generator_states()
            drawn = {n: before[n] for n in before if before[n] != after[n]}
            facts = {}
            if not grad:
                facts = {"buffers": self.buffers(module), "weights": weights(module)}
            self.log.write(
                "pass",
                line=self.log.line(),
                grad=grad,
                drawn=drawn,
                training=module.training,
                wrapped=isinstance(module, DistributedDataParallel),
                inside=inside,
                rows=rows([*args, *kwargs.values()]),
                **facts,
            )

    def learn_names(self, module):
        """Remember the names of a module's parameters."""
        for name, parameter in module.named_parameters():
            self.names.setdefault(id(parameter), name.removeprefix("module."))

    def buffers(self, module):
        """Return digests of a module's buffers, {name: digest}."""
        if UnsyncedBatchNorm.used:
            return {}
        named = module.named_buffers()
        return {name.removeprefix("module."): digest(b) for name, b in named}

    def ddp_init(self, original, ddp, *args, **options):
        """Around the constructor of DDP."""
        original(ddp, *args, **options)
        ddp.exchanges = 0
        ddp.will_exchange = False
        self.ddps.append(ddp)
        self.learn_names(ddp.module)
        self.log.write("ddp", line=self.log.line())

    def ddp_forward(self, original, ddp, *args, **options):
        """Around a forward pass through DDP."""
        if torch.is_grad_enabled() and ddp.require_backward_grad_sync:
            ddp.will_exchange = True
        return original(ddp, *args, **options)

    def backward(self, original, *args, **options):
        """Around Tensor.backward: with DDP it is a collective."""
        if self.in_backward:  # PyTorch calls it again, below a mode of functions
            return original(*args, **options)
        self.in_backward = True
        self.backwards += 1
        exchanging = [ddp for ddp in self.ddps if ddp.will_exchange]
        self.log.write("backward", line=self.log.line(), meets=bool(exchanging))
        try:
            result = original(*args, **options)
        finally:
            self.in_backward = False
        for ddp in exchanging:
            ddp.exchanges += 1
            ddp.will_exchange = False
        return result

    def zero_grad(self, original, optimizer, *args, **options):
        """Around Optimizer.zero_grad: what was exchanged for it is thrown away."""
        for ddp in self.ddps_of(optimizer):
            ddp.exchanges = 0
        return original(optimizer, *args, **options)

    def module_zero_grad(self, original, module, *args, **options):
        """Around Module.zero_grad: the same."""
        for ddp in self.ddps:
            if module is ddp or module is ddp.module:
                ddp.exchanges = 0
        return original(module, *args, **options)

    def clip(self, original, *args, **options):
        """Around the clipping of gradients."""
        norm = original(*args, **options)
        if type(norm) is torch.Tensor:
            self.log.write("clip", line=self.log.line(), norm=float(norm))
        return norm

    # The optimizer

    def before_step(self, optimizer, args, kwargs):
        """Before a step of an optimizer."""
        self.stepping += 1
        if self.stepping > 1:
            return
        number = self.optimizers.setdefault(id(optimizer), len(self.optimizers))
        gradients = {}
        for name, parameter in self.parameters(optimizer):
            if parameter.grad is not None and is_replicated(parameter):
                gradients[name] = digest(parameter.grad)
        exchanges = [ddp.exchanges for ddp in self.ddps_of(optimizer)]
        self.log.write(
            "before_step",
            line=self.log.line(),
            optimizer=number,
            gradients=gradients,
            exchanges=max(exchanges, default=0),
            wrapped=[name for name, p in self.parameters(optimizer) if self.in_ddp(p)],
        )

    def after_step(self, optimizer, args, kwargs):
        """After a step of an optimizer."""
        self.stepping -= 1
        if self.stepping:
            return
        self.steps += 1
        self.log.write(
            "step",
            line=self.log.line(),
            optimizer=self.optimizers[id(optimizer)],
            rates=[float(group["lr"]) for group in optimizer.param_groups],
            weights={
                name: digest(parameter)
                for name, parameter in self.parameters(optimizer)
                if is_replicated(parameter)
            },
        )
        for ddp in self.ddps_of(optimizer):
            ddp.exchanges = 0
        if self.steps >= MOST_STEPS:
            self.end()

    def ddps_of(self, optimizer):
        """Return the DDPs that have parameters of an optimizer."""
        ours = {id(one) for group in optimizer.param_groups for one in group["params"]}
        return [
            ddp for ddp in self.ddps if any(id(one) in ours for one in ddp.parameters())
        ]

    def in_ddp(self, parameter):
        """Return whether a parameter is one of a module that DDP wraps."""
        return any(parameter is one for ddp in self.ddps for one in ddp.parameters())

    def parameters(self, optimizer):
        """Return (name, parameter) of what an optimizer changes."""
        found = []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = self.names.get(id(parameter), f"parameter {len(found)}")
                found.append((name, parameter))
        return found


def is_replicated(parameter):
    """Return whether each rank has the whole parameter."""
    placements = getattr(parameter, "placements", ())
    return all(placement.is_replicate() for placement in placements)


def weights(module):
    """Return a digest of what this rank has of all parameters of a module."""
    parts = [local_part(one).double().sum() for one in module.parameters()]
    if any(not is_replicated(one) for one in module.parameters()):
        return None
    return digest(torch.stack(parts))
