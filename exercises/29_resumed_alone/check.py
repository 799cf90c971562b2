from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    ended,
    equal_weights,
    same_curve,
    shared_out,
    wrapped,
)


def check(run):
    resumed(run, {}, 1, 3)
    resumed(run, OTHER, 2, 4, "--resume")  # the first run has nothing to resume


def resumed(run, setting, before, epochs, *flags):
    """Raise Wrong unless a run goes on after `before` epochs as if never stopped."""
    seen = run(*flags, **setting, epochs=epochs, resume=before)
    whole = run.solution(**setting, epochs=epochs)
    ended(seen)
    left = epochs - before
    for rank in range(len(seen.events)):
        steps, expected = len(seen.of("step", rank)), len(whole.of("step")) // epochs
        if steps != expected * left:
            raise Wrong(
                f"With {before} of {epochs} epochs done, rank {rank} trained "
                f"{steps / expected:g} epochs, expected {left}."
            )
    wrapped(seen)
    shared_out(seen, setting.get("train", TRAIN), epochs=left)
    equal_weights(seen)
    same_curve(seen, whole, "a run that was never stopped")
