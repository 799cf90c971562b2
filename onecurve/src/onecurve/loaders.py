"""What is written down of a script's loaders: indices, batches, random generators."""

import dis
import math
import sys
import weakref
from collections import Counter
from itertools import chain, islice

import torch
from torch.utils.data import IterableDataset, get_worker_info

from onecurve.events import OWN
from onecurve.identities import own_number
from onecurve.origins import Origins, origin
from onecurve.recorder import Recorder
from onecurve.replace import replace
from onecurve.samples import changed, generator_states, rows, share_of

MOST = 200_000  # batches, or samples, of an epoch whose indices are looked at
EVALUATION_BATCHES = 6  # of an evaluation
EPOCH_STEPS = 4  # of an epoch
STREAM_STEPS = 16  # of one of a stream, which may evaluate and save in its midst
EPOCHS = 2  # of training that have so many steps
MOST_EPOCHS = 8
FURTHEST_EPOCHS = 40  # of a small model, so that the script comes to its end
OTHERS = 3  # times as many of all loaders together
MOST_STREAMED = 500  # batches of a stream that are looked at


def in_loop(frame):
    """Return whether a loop asks for the next batch, which may end, and not next().

    `frame` is the script's: what its progress bar does, on one rank, is not asked.
    Where a library reads the batches it is None, and that library's counts.
    """
    frame = frame or sys._getframe(1)
    while frame.f_code.co_filename.startswith(OWN):
        frame = frame.f_back
    instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return not instruction.startswith(("CALL", "PRECALL"))


def of_data(loader):
    """Return what tells a loader from another of one line: that of other data.

    One that is made anew for each epoch is the same.
    """
    return loader.line, own_number(loader.dataset)


class Loaders(Recorder):
    """Writes down what a rank's loaders do, and shortens their epochs.

    `end` is called, without arguments, when enough has been seen. None: the script runs
    to its own end, and nothing is shortened.
    """

    def __init__(self, log, end=None):
        super().__init__(log)
        self.end = end
        self.steps = 0  # of optimizers
        self.backwards = 0
        self.passes = 0  # of the network
        self.trained_on = []  # digests of the samples of passes for the next step
        self.loader_line = None  # of the loader that is being read
        self.batch = []  # loader, epoch and number of the latest batch
        self.states = None  # of the generators, after a batch, a pass or a step
        self.readings = Counter()  # line of a loader -> how often it was iterated over
        self.trained = Counter()  # of a loader, by `of_data` -> epochs of training
        self.lengths = []  # of loaders, as the script was told
        self.cuts = True  # evaluations, after some batches
        self.keeps_lengths = False  # whether unequal epochs go to their ends
        self.open = {}  # of a loader, by `of_data` -> its epoch that is being read

    def install(self):
        """Put the methods below in place."""
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
        """Around the constructor of a loader."""
        original(loader, *args, **options)
        loader.line = self.line()
        loader.dealt = loader.line  # where it is said who takes what
        for sampler in loader.sampler, loader.batch_sampler:
            made = origin(sampler)
            if made and made != loader.line:  # by the script, not by the loader
                loader.dealt = made

    def loader_length(self, original, loader):
        """Around the number of batches that a loader says it has."""
        length = original(loader)
        if self.log.frame() and length not in self.lengths:
            self.lengths.append(length)
            self.log.write("length", length=length)
        return length

    def loader_iter(self, original, loader):
        """Around the beginning of an epoch."""
        self.epoch_begins(loader)
        reading = original(loader)
        self.begin(reading, loader)
        return reading

    def epochs_of(self, key):
        """Return how many epochs were trained of a loader, or by a share of all."""
        return max(self.trained[key], self.trained.total() / OTHERS)

    def epoch_begins(self, loader):
        """Before an epoch; ends all where enough were trained."""
        key = of_data(loader)
        self.left_early(key)
        most = FURTHEST_EPOCHS if self.is_small() else MOST_EPOCHS
        if self.end and self.epochs_of(key) >= most:
            self.finish()
        self.readings[loader.line] += 1
        self.loader_line = loader.line  # workers, which start now, know it, too

    def begin(self, reading, loader):
        """Note at an epoch's iterator what is known of it."""
        key = of_data(loader)
        reading.batches = 0
        reading.has_ended = False
        reading.dealt = loader.dealt
        reading.rows = []  # of a stream: for each batch, digests of its samples
        reading.steps = EPOCH_STEPS
        if isinstance(loader.dataset, IterableDataset):
            reading.steps = STREAM_STEPS
        if self.epochs_of(key) >= EPOCHS:
            reading.steps = 1  # so that the script comes to its end
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
        """Write down the epoch of a loader, or of all, that was left before its end."""
        for one in [key] if key else list(self.open):
            reading = self.open.pop(one, None)
            if reading is None:  # "not reading" would ask a stream for its length
                continue
            # next(iter(loader)) trains nothing: with no step in it, or no gradients
            if reading.grad and self.steps > reading.before[0]:
                self.reading_ends(reading)

    def is_reading_to_train(self):
        """Return whether the innermost loader that is read is one for training."""
        return bool(self.open) and list(self.open.values())[-1].grad

    def is_small(self):
        """Return whether the model is small, as far as is known here."""
        return False

    def list_indices(self, original, reading, loader, *args):
        """Around where an epoch gets its sampler: its indices are listed at once."""
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
        """Return whether an epoch has gone on for long enough."""
        if not self.end:
            return False
        steps, backwards, passes = reading.before
        evaluates = self.backwards == backwards and self.passes > passes
        if evaluates and self.cuts and reading.batches >= EVALUATION_BATCHES:
            self.log.write("cut")
            return True
        return self.steps - steps >= reading.steps

    def next_of_loader(self, original, reading):
        """Around the reading of a batch; its loader may begin epochs in its own way."""
        if not hasattr(reading, "begun"):
            loader = reading.of() if hasattr(reading, "of") else None
            if loader is None:  # of a library, such as one whose state can be saved
                return original(reading)
            self.epoch_begins(loader)
            self.begin(reading, loader)
        return self.next_batch(original, reading)

    def next_batch(self, original, reading):
        """Around the reading of a batch; ends an epoch after some steps."""
        is_enough = self.enough(reading) and in_loop(self.log.frame())
        if is_enough and not self.goes_to_its_end(original, reading):
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
        """Return whether an epoch goes on: the ranks' numbers of batches differ.

        Then it shows whether they hang. The same number of batches is skipped on each
        rank, which leaves the difference.
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
        """After the reading of a batch."""
        reading.batches += 1
        self.batch = [*reading.facts.values(), reading.batches]
        self.states = generator_states()

    def finish(self):
        """Write down the epochs that have not ended; then end the run, if it is to."""
        self.left_early()
        if self.end:
            self.end()

    def reading_ends(self, reading):
        """Write down an epoch at its end, once: one may ask again for a batch."""
        if reading.has_ended:
            return
        reading.has_ended = True
        self.open.pop(reading.key, None)
        steps, _, passes = reading.before
        trained = self.steps > steps
        if self.passes == passes:  # all batches first, as in list(loader)
            trained = reading.grad
        self.trained[reading.key] += trained
        facts = {**reading.facts, **reading.share, "dealt": reading.dealt}
        facts |= {"rows": reading.rows, "begun": reading.begun}
        self.log.write("read", **facts, trained=trained)

    def fetch(self, original, fetcher, indices):
        """Around the reading of samples, in this process or in a worker."""
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
