"""Record a script's data loaders: indices, batches and random generators."""

import dis
import sys
import weakref
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import chain, islice

import torch
from torch.utils.data import IterableDataset, get_worker_info

from onecurve.set_up.replace import replace
from onecurve.watch.events import OWN
from onecurve.watch.identities import own_number
from onecurve.watch.origins import origin
from onecurve.watch.samples import changed, generator_states, rows, share_of

MOST = 200_000  # batches or samples of an epoch whose indices are recorded
MOST_UNSURE = 2_000  # the same, if its length is unknown; it may be endless
MOST_STREAMED = 500  # batches of a stream that are recorded


def in_loop(frame):
    """Return whether a loop, which may end, asks for the next batch, not next().

    `frame` is the script's, since its progress bar may run on one rank only. It is None
    if a library reads the batches; then the library's frame counts.
    """
    frame = frame or sys._getframe(1)
    while frame.f_code.co_filename.startswith(OWN):
        frame = frame.f_back
    instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return not instruction.startswith(("CALL", "PRECALL"))


def of_data(loader):
    """Return a loader's key, its line and dataset; a re-created loader has the same."""
    return loader.line, own_number(loader.dataset)


class Supply:
    """Gives a script its own batches, unchanged; `feed` has others."""

    lengths = {}  # noqa: RUF012, `made_as` of a loader -> length told to the script

    def start_epoch(self, original, loader):
        return original(loader)

    def fetch(self, original, fetcher, indices):
        """Return the samples that a sampler chose, collated."""
        return original(fetcher, indices)

    def next_batch(self, read, reading):
        """Return the next batch; `read(reading)` reads it from the script's dataset."""
        return read(reading)

    def may_cut(self, reading):
        """Return whether an epoch may end early."""
        return True

    def cut(self, reading):
        """Note that an epoch ends early."""


class Loaders:
    """Writes the events `begun`, `read`, `fetch` and `cut`; shortens epochs."""

    def __init__(self, script, supply, budget):
        self.script = script
        self.log = script.log
        self.supply = supply
        self.budget = budget
        self.line = None  # of the loader being read
        self.readings = Counter()  # line of a loader -> times iterated
        self.made = Counter()  # line of loaders -> how many it has created
        self.latest = None  # the epoch that the latest batch is from

    def install(self):
        replace("torch.utils.data:DataLoader.__init__", self.loader_init)
        replace("torch.utils.data:DataLoader.__iter__", self.loader_iter)
        replace("torch.utils.data:DataLoader.__len__", self.loader_length)
        loading = "torch.utils.data.dataloader"
        replace(f"{loading}:_SingleProcessDataLoaderIter.__init__", self.list_indices)
        replace(f"{loading}:_BaseDataLoaderIter._reset", self.list_indices)
        replace(f"{loading}:_BaseDataLoaderIter.__next__", self.next_of_loader)
        fetchers = "torch.utils.data._utils.fetch"
        replace(f"{fetchers}:_MapDatasetFetcher.fetch", self.fetch)
        replace(f"{fetchers}:_IterableDatasetFetcher.fetch", self.fetch)

    def loader_init(self, original, loader, *args, **options):
        original(loader, *args, **options)
        loader.line = self.log.line()
        self.made[loader.line] += 1
        loader.made_as = loader.line, self.made[loader.line]
        loader.dealt = loader.line  # the line that distributes samples
        for sampler in loader.sampler, loader.batch_sampler:
            made = origin(sampler)
            if made and made != loader.line:  # created by the script, not by the loader
                loader.dealt = made

    def loader_length(self, original, loader):
        own = original(loader)
        length = self.supply.lengths.get(getattr(loader, "made_as", None), own)
        if length != own:
            self.log.write("length")
        return length

    def loader_iter(self, original, loader):
        self.epoch_begins(loader)
        reading = self.supply.start_epoch(original, loader)
        self.begin(reading, loader)
        return reading

    def epoch_begins(self, loader):
        """Start an epoch, or end the run if there were enough."""
        key = of_data(loader)
        self.left_early(key)
        self.budget.epoch_begins(key)
        self.readings[loader.line] += 1
        self.line = loader.line  # workers, which start now, inherit it

    def begin(self, reading, loader):
        key = of_data(loader)
        reading.batches = 0
        reading.has_ended = False
        reading.made = loader.made_as
        reading.dealt = loader.dealt
        reading.rows = []  # of a stream: digests of each batch's samples
        reading.steps = self.budget.steps_of(loader, key)
        reading.grad = torch.is_grad_enabled()
        reading.uses = set()  # whether networks get its batches with gradients
        script = self.script
        reading.before = script.steps, script.backwards, script.passes
        reading.facts = {"line": loader.line, "number": self.readings[loader.line]}
        reading.begun = self.log.line()
        reading.key = key
        script.open[key] = reading
        batches = len(reading.share["sizes"]) if hasattr(reading, "share") else 0
        if batches:
            facts = {"line": loader.line, "made": loader.made_as, "batches": batches}
            self.log.write("begun", trains=reading.grad, **facts)

    def left_early(self, key):
        """Record a loader's epoch if the script left it early."""
        reading = self.script.open.pop(key, None)
        # "if reading" would ask a stream for its length; next(iter(loader)), without
        # steps or gradients, trains nothing
        if reading is not None and reading.grad and self.trains(reading):
            self.reading_ends(reading)

    def trains(self, reading):
        """Return whether an epoch trains; one read between steps may only evaluate."""
        return self.script.steps > reading.before[0] and reading.uses != {False}

    def list_indices(self, original, reading, loader, *args):
        """Wrap where an epoch gets its sampler, and list its indices at once."""
        original(reading, loader, *args)
        if not hasattr(loader, "line"):  # DataLoader's constructor was not called
            return
        reading.of = weakref.ref(loader)
        reading.share = {"indices": None, "sizes": []}
        if isinstance(loader.dataset, IterableDataset):
            return
        most = MOST_UNSURE
        with suppress(TypeError, NotImplementedError):
            most = min(MOST, 2 * len(loader._index_sampler) + 2)  # or an estimate
        taken = list(islice(reading._sampler_iter, most))
        reading._sampler_iter = chain(taken, reading._sampler_iter)
        loader.is_endless = len(taken) == most < MOST
        if len(taken) < most:
            reading.share = share_of(loader, taken)

    def next_of_loader(self, original, reading):
        """Wrap reading a batch, even if the loader overrides __iter__."""
        if not hasattr(reading, "begun"):
            loader = reading.of() if hasattr(reading, "of") else None
            if loader is None:  # a library's, such as a stateful loader
                return original(reading)
            self.epoch_begins(loader)
            self.begin(reading, loader)
        return self.next_batch(original, reading)

    def next_batch(self, original, reading):
        """Wrap reading a batch: the supply may have another one."""
        try:
            batch = self.supply.next_batch(partial(self.read, original), reading)
        except StopIteration:
            self.reading_ends(reading)
            raise
        reading.batches += 1
        self.latest = reading
        self.script.batch = [*reading.facts.values(), reading.batches]
        self.script.states = generator_states()
        self.script.tell("batch_came", reading)
        return batch

    def pass_begins(self, network):
        if self.latest is not None:
            self.latest.uses.add(torch.is_grad_enabled())

    def read(self, original, reading):
        """Read a batch of the script's dataset; end an epoch after some steps."""
        if self.is_enough(reading) and in_loop(self.log.frame()):
            self.log.write("cut", made=reading.made, training=reading.grad)
            raise StopIteration
        self.line = reading.facts["line"]
        batch = original(reading)
        if reading.share["indices"] is None and len(reading.rows) < MOST_STREAMED:
            reading.rows.append(rows(batch))
        return batch

    def is_enough(self, reading):
        if not self.supply.may_cut(reading) or not self.budget.is_enough(reading):
            return False
        self.supply.cut(reading)
        return True

    def finish(self):
        for key in list(self.script.open):
            self.left_early(key)

    def reading_ends(self, reading):
        """Record an epoch at its end, once: a batch may be requested again."""
        if reading.has_ended:
            return
        reading.has_ended = True
        self.script.open.pop(reading.key, None)
        trained = self.trains(reading)
        if self.script.passes == reading.before[-1]:
            # all were read first, as in list(loader)
            trained = reading.grad
        self.budget.trained[reading.key] += trained
        facts = {**reading.facts, **reading.share, "dealt": reading.dealt}
        facts |= {"rows": reading.rows, "begun": reading.begun}
        self.log.write("read", **facts, trained=trained)

    def fetch(self, original, fetcher, indices):
        """Wrap reading samples, in this process or in a worker."""
        before = generator_states()
        batch = self.supply.fetch(original, fetcher, indices)
        worker = get_worker_info()
        facts = {"line": self.line, "worker": worker.id if worker else None}
        facts["drawn"] = changed(before, generator_states())
        self.log.write("fetch", **facts)
        return batch
