"""What is written down of a script's loaders: indices, batches, random generators."""

import dis
import sys

import torch
from torch.utils.data import IterableDataset, get_worker_info

from tools.inspect.samples import (
    base_of,
    changed,
    flat,
    generator_states,
    identity,
    rows,
)
from tools.watch.events import TOOLS
from tools.watch.replace import replace

MOST_INDICES = 2_000_000  # of an epoch that are looked at
LOADER_BATCHES = 6  # of an evaluation
LOADER_STEPS = 4  # of an epoch
TRAINING_EPOCHS = 2


def named(loader):
    """Return which loader it is, and which of its epochs this is."""
    return {"line": loader.line, "made": loader.made, "number": loader.readings}


def in_loop():
    """Return whether a loop asks for the next batch, which may end, and not next()."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(TOOLS):
        frame = frame.f_back
    instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return not instruction.startswith(("CALL", "PRECALL"))


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


class Data:
    """Writes down what a rank's loaders do, and shortens their epochs.

    `end` is called, without arguments, when enough has been seen.
    """

    def __init__(self, log, end):
        self.log = log
        self.end = end
        self.steps = 0  # of optimizers
        self.backwards = 0
        self.passes = 0  # of the network
        self.reading_line = None  # of the loader that is being read
        self.states = None  # of the generators, after a batch, a pass or a step
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

    def listing_sampler(self):
        """Return a property in place of the loaders' `_index_sampler`."""
        original = torch.utils.data.DataLoader._index_sampler.fget

        def get(loader):
            sampler = original(loader)
            if isinstance(loader.dataset, IterableDataset):
                return sampler

            def told(taken, complete):
                self.taken(loader, taken, complete)

            return Listed(sampler, told)

        return property(get)

    def taken(self, loader, taken, complete):
        """Write down the indices of an epoch, one list for each batch."""
        sizes = [len(flat(one)) for one in taken]
        loader.sizes = sizes
        dataset, indices = base_of(loader.dataset, flat(taken))
        key = id(dataset)
        if key not in self.identities:
            self.identities[key] = identity(dataset), dataset
        sampler = getattr(loader, "sampler", None)
        self.log.write(
            "indices",
            **named(loader),
            size=len(dataset),
            offered=len(loader.dataset),
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
        loader.sizes = []  # samples in each batch of an epoch, where they are known

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
        self.reading_line = loader.line  # workers are told so, too: they start now
        reading.loader = loader
        reading.batches = 0
        reading.grad = torch.is_grad_enabled()
        reading.before = self.steps, self.backwards, self.passes
        self.log.write(
            "reading",
            **named(loader),
            stream=isinstance(loader.dataset, IterableDataset),
        )

    def enough(self, reading):
        """Return whether an epoch has gone on for long enough."""
        steps, backwards, passes = reading.before
        evaluates = self.backwards == backwards and self.passes > passes
        if evaluates and reading.batches >= LOADER_BATCHES:
            return True
        return self.steps - steps >= LOADER_STEPS

    def next_batch(self, original, reading):
        """Around the reading of a batch; ends an epoch after some steps."""
        if self.enough(reading) and in_loop():
            self.reading_ends(reading, cut=True)
            raise StopIteration
        self.reading_line = reading.loader.line
        try:
            batch = original(reading)
        except StopIteration:
            self.reading_ends(reading, cut=False)
            raise
        self.batch_came(reading, batch)
        return batch

    def batch_came(self, reading, batch):
        """Write down a batch."""
        reading.batches += 1
        loader = reading.loader
        number = reading.batches
        self.log.write("batch", **named(loader), batch=number, rows=rows(batch))
        self.states = generator_states()

    def reading_ends(self, reading, cut):
        """Write down the end of an epoch; after some of training it is enough."""
        loader = reading.loader
        steps, _, passes = reading.before
        trained = self.steps > steps
        if self.passes == passes:  # all batches first, as in list(loader)
            trained = reading.grad
        if trained:
            self.trained[loader.line] = self.trained.get(loader.line, 0) + 1
        batches = reading.batches
        self.log.write(
            "read", **named(loader), batches=batches, trained=trained, cut=cut
        )

    def fetch(self, original, fetcher, indices):
        """Around the reading of samples, in this process or in a worker."""
        before = generator_states()
        batch = original(fetcher, indices)
        worker = get_worker_info()
        self.log.write(
            "fetch",
            line=self.reading_line,
            worker=worker.id if worker else None,
            drawn=changed(before, generator_states()),
        )
        return batch
