from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    ended,
    equal_weights,
    same_curve,
    wrapped,
)
from tools.lab.image_checks import partitioned

TRY = {"resume": 1}


def check(run):
    resumed(run, {}, 1, 3)
    resumed(run, OTHER, 2, 4, "--resume")  # the first run has nothing to resume


def resumed(run, setting, before, epochs, *flags):
    """Raise Wrong unless a run goes on after `before` epochs as if never stopped."""
    record = run(*flags, **setting, epochs=epochs, resume=before)
    whole = run.solution(**setting | {"processes": 1}, epochs=epochs)
    ended(record)
    left = epochs - before
    for rank in range(len(record.events)):
        steps = len(record.of("step", rank))
        expected = len(whole.of("step")) // epochs
        if steps != expected * left:
            raise Wrong(
                f"With {before} of {epochs} epochs done, rank {rank} trained "
                f"{steps / expected:g} epochs, expected {left}."
            )
    wrapped(record)
    partitioned(record, setting.get("train", TRAIN), epochs=left)
    equal_weights(record)
    same_curve(record, whole, "a run that was never stopped")
