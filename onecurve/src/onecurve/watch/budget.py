"""Decide when enough of a run was seen."""

from collections import Counter

from torch.utils.data import IterableDataset

EVALUATION_BATCHES = 6  # per evaluation
EPOCH_STEPS = 4  # per epoch
STREAM_STEPS = 16  # per epoch of a stream, which may evaluate and save midway
EPOCHS = 2  # with this many steps
MOST_EPOCHS = 8
FURTHEST_EPOCHS = 40  # of a small model, so the script reaches its end
OTHERS = 3  # times as many for all loaders together
MOST_STEPS = 32  # without epochs, once the script has evaluated
FURTHEST = 160  # if it hasn't, or the model is small: some scripts finish


class Budget:
    """Shortens epochs, and ends a run after some of them or after enough steps."""

    def __init__(self, script, cuts=True):
        self.script = script
        self.cuts = cuts  # whether epochs and evaluations end after some batches
        self.trained = Counter()  # loader's key -> epochs of training

    def epochs_of(self, key):
        """Return a loader's epochs of training, or a share of all loaders'."""
        return max(self.trained[key], self.trained.total() / OTHERS)

    def epoch_begins(self, key):
        """Before an epoch: end the run if there were enough."""
        most = FURTHEST_EPOCHS if self.script.is_small() else MOST_EPOCHS
        if self.script.end and self.epochs_of(key) >= most:
            self.script.finish()

    def steps_of(self, loader, key):
        """Return after how many steps to end an epoch."""
        if self.epochs_of(key) >= EPOCHS:
            return 1  # so the script reaches its end
        if getattr(loader, "is_endless", False):
            return FURTHEST  # it has one epoch
        is_stream = isinstance(loader.dataset, IterableDataset)
        return STREAM_STEPS if is_stream else EPOCH_STEPS

    def is_enough(self, reading):
        """Return whether enough of an epoch was seen."""
        script = self.script
        if not (script.end and self.cuts):
            return False
        steps, backwards, passes = reading.before
        evaluates = script.backwards == backwards and script.passes > passes
        if evaluates and reading.batches >= EVALUATION_BATCHES:
            return True
        return script.steps - steps >= reading.steps

    def step_ends(self, optimizer):
        if self.script.end and self.has_enough():
            self.script.finish()

    def has_enough(self):
        """Return whether a script without epochs has taken enough steps."""
        script = self.script
        if script.steps < MOST_STEPS:
            return False
        evaluated = script.end.has_evaluated(script.steps)
        return script.steps >= FURTHEST or (evaluated and not script.is_small())
