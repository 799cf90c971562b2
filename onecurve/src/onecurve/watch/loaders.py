"""Record a script's data loaders: indices, batches and random generators."""

import dis
import math
import sys
import weakref
from collections import Counter
from itertools import chain, islice

import torch
from torch.utils.data import IterableDataset, get_worker_info

from onecurve.set_up.replace import replace
from onecurve.watch.collectives import Collectives
from onecurve.watch.events import OWN
from onecurve.watch.identities import own_number
from onecurve.watch.origins import Origins, origin
from onecurve.watch.samples import changed, generator_states, rows, share_of

MOST = 200_000  # batches or samples of an epoch whose indices are recorded
EVALUATION_BATCHES = 6  # per evaluation
EPOCH_STEPS = 4  # per epoch
STREAM_STEPS = 16  # per epoch of a stream, which may evaluate and save midway
EPOCHS = 2  # with this many steps
MOST_EPOCHS = 8
FURTHEST_EPOCHS = 40  # of a small model, so the script reaches its end
OTHERS = 3  # times as many for all loaders together
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


class Loaders(Collectives):
    """Records what a rank's loaders do, and shortens their epochs.

    `end` is called without arguments when enough has been seen. If None, the script
    runs to its own end and nothing is shortened.
    """

    def __init__(self, log, end=None):
        super().__init__(log)
        self.end = end
        self.steps = 0  # of optimizers
        self.backwards = 0
        self.passes = 0  # of networks
        self.trained_on = []  # digests of samples passed since the latest step
        self.loader_line = None  # of the loader being read
        self.batch = []  # loader, epoch and number of the latest batch
        self.states = None  # of the generators after a batch, pass or step
        self.readings = Counter()  # line of a loader -> times iterated
        self.trained = Counter()  # key from `of_data` -> epochs of training
        self.lengths = []  # of loaders, as returned to the script
        self.cuts = True  # whether epochs and evaluations end after some batches
        self.keeps_lengths = False  # whether unequal epochs are finished
        self.open = {}  # key from `of_data` -> the epoch being read

    def install(self):
        super().install()
        Origins(self.log).install()
        replace("torch.utils.data:DataLoader.__init__", self.loader_init)
        replace("torch.utils.data:DataLoader.__iter__", self.loader_iter)
        replace("torch.utils.data:DataLoader.__len__", self.loader_length)
        loading = "torch.utils.data.dataloader"
        single = f"{loading}:_SingleProcessDataLoaderIter"
        replace(f"{single}.__init__", self.list_indices)
        replace(f"{loading}:_BaseDataLoaderIter._reset", self.list_indices)
        replace(f"{loading}:_BaseDataLoaderIter.__next__", self.next_of_loader)
        fetchers = "torch.utils.data._utils.fetch"
        replace(f"{fetchers}:_MapDatasetFetcher.fetch", self.fetch)
        replace(f"{fetchers}:_IterableDatasetFetcher.fetch", self.fetch)

    def loader_init(self, original, loader, *args, **options):
        original(loader, *args, **options)
        loader.line = self.line()
        loader.dealt = loader.line  # the line that distributes samples
        for sampler in loader.sampler, loader.batch_sampler:
            made = origin(sampler)
            if made and made != loader.line:  # created by the script, not by the loader
                loader.dealt = made

    def loader_length(self, original, loader):
        length = original(loader)
        if self.log.frame() and length not in self.lengths:
            self.lengths.append(length)
            self.log.write("length", length=length)
        return length

    def loader_iter(self, original, loader):
        """Wrap the start of an epoch."""
        self.epoch_begins(loader)
        reading = original(loader)
        self.begin(reading, loader)
        return reading

    def epochs_of(self, key):
        """Return a loader's epochs of training, or a share of all loaders'."""
        return max(self.trained[key], self.trained.total() / OTHERS)

    def epoch_begins(self, loader):
        """Start an epoch, or end the run if there were enough."""
        key = of_data(loader)
        self.left_early(key)
        most = FURTHEST_EPOCHS if self.is_small() else MOST_EPOCHS
        if self.end and self.epochs_of(key) >= most:
            self.finish()
        self.readings[loader.line] += 1
        self.loader_line = loader.line  # workers, which start now, inherit it

    def begin(self, reading, loader):
        """Set an epoch's facts on its iterator."""
        key = of_data(loader)
        reading.batches = 0
        reading.has_ended = False
        reading.dealt = loader.dealt
        reading.rows = []  # of a stream: digests of each batch's samples
        reading.steps = EPOCH_STEPS
        if isinstance(loader.dataset, IterableDataset):
            reading.steps = STREAM_STEPS
        if self.epochs_of(key) >= EPOCHS:
            reading.steps = 1  # so the script reaches its end
        reading.grad = torch.is_grad_enabled()
        reading.before = self.steps, self.backwards, self.passes
        reading.facts = {"line": loader.line, "number": self.readings[loader.line]}
        reading.begun = self.line()
        reading.key = key
        self.open[key] = reading
        batches = len(reading.share["sizes"]) if hasattr(reading, "share") else 0
        if batches:
            facts = {"batches": batches, "trains": reading.grad}
            self.log.write("begun", line=loader.line, **facts)
            if self.keeps_lengths:
                self.end.note_length(*reading.facts.values(), batches)

    def left_early(self, key=None):
        """Record epochs, of one loader or all, that the script left early."""
        for one in [key] if key else list(self.open):
            reading = self.open.pop(one, None)
            if reading is None:  # "not reading" would ask a stream for its length
                continue
            # next(iter(loader)), without steps or gradients, trains nothing
            if reading.grad and self.steps > reading.before[0]:
                self.reading_ends(reading)

    def is_reading_to_train(self):
        """Return whether the innermost epoch being read is for training."""
        return bool(self.open) and list(self.open.values())[-1].grad

    def is_small(self):
        """Return whether the model is known to be small."""
        return False

    def list_indices(self, original, reading, loader, *args):
        """Wrap where an epoch gets its sampler, and list its indices at once."""
        original(reading, loader, *args)
        if not hasattr(loader, "line"):  # DataLoader's constructor was not called
            return
        reading.of = weakref.ref(loader)
        reading.share = {"indices": None, "sizes": []}
        if isinstance(loader.dataset, IterableDataset):
            return
        taken = list(islice(reading._sampler_iter, MOST))
        reading._sampler_iter = chain(taken, reading._sampler_iter)
        if len(taken) < MOST:
            reading.share = share_of(loader, taken)

    def enough(self, reading):
        """Return whether enough of an epoch was seen."""
        if not (self.end and self.cuts):
            return False
        steps, backwards, passes = reading.before
        evaluates = self.backwards == backwards and self.passes > passes
        if evaluates and reading.batches >= EVALUATION_BATCHES:
            return True
        return self.steps - steps >= reading.steps

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
        """Wrap reading a batch, and end an epoch after some steps."""
        is_enough = self.enough(reading) and in_loop(self.log.frame())
        if is_enough and not self.goes_to_its_end(original, reading):
            self.log.write("cut", training=reading.grad)
            self.reading_ends(reading)
            raise StopIteration
        self.loader_line = reading.facts["line"]
        try:
            batch = original(reading)
        except StopIteration:
            self.reading_ends(reading)
            raise
        if reading.share["indices"] is None and len(reading.rows) < MOST_STREAMED:
            reading.rows.append(rows(batch))
        self.batch_came(reading)
        return batch

    def goes_to_its_end(self, original, reading):
        """Return whether to finish an epoch, because ranks' batch counts differ.

        This shows whether the ranks hang. Each rank skips the same number of batches,
        so the difference remains.
        """
        if not (self.keeps_lengths and reading.grad):
            return False
        lengths = self.end.lengths(*reading.facts.values())
        if len(set(lengths)) < 2:
            return False
        for _ in range(min(lengths) - reading.batches):
            original(reading)
            reading.batches += 1
        reading.steps = math.inf
        return True

    def batch_came(self, reading):
        reading.batches += 1
        self.batch = [*reading.facts.values(), reading.batches]
        self.states = generator_states()

    def finish(self):
        """Record the open epochs, then end the run if it is to end."""
        self.left_early()
        if self.end:
            self.end()

    def reading_ends(self, reading):
        """Record an epoch at its end, once: a batch may be requested again."""
        if reading.has_ended:
            return
        reading.has_ended = True
        self.open.pop(reading.key, None)
        steps, _, passes = reading.before
        trained = self.steps > steps
        if self.passes == passes:  # all batches were read first, as in list(loader)
            trained = reading.grad
        self.trained[reading.key] += trained
        facts = {**reading.facts, **reading.share, "dealt": reading.dealt}
        facts |= {"rows": reading.rows, "begun": reading.begun}
        self.log.write("read", **facts, trained=trained)

    def fetch(self, original, fetcher, indices):
        """Wrap reading samples, in this process or in a worker."""
        before = generator_states()
        batch = original(fetcher, indices)
        worker = get_worker_info()
        self.log.write(
            "fetch",
            line=self.loader_line,
            worker=worker.id if worker else None,
            drawn=changed(before, generator_states()),
        )
        return batch
