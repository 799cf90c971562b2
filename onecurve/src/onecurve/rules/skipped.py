"""One rank skips a batch, perhaps because its loss is not finite, so another waits at
the end of the epoch. It is right if each rank reads as many batches as it needs.
"""

from onecurve.evidence.found import found

LEVEL = "LOOK"
MESSAGE = "ranks are at different batches in step {number}: {batches}"
FIX = "take or skip a batch on all ranks: all_reduce what decides, with MIN"
RANKS = "own batches"


def find(seen):
    begun = [[one["batches"] for one in each] for each in seen.on_all("begun")]
    if seen.of("join") or any(lengths != begun[0] for lengths in begun):
        return  # ranks may cycle through loaders of their own lengths
    tables = [batch_in_each_step(events) for events in seen.events]
    for number, each in enumerate(zip(*tables, strict=False), start=1):
        epochs = {(line, epoch) for line, epoch, _ in each}
        batches = [batch for _, _, batch in each]
        if len(epochs) == 1 and len(set(batches)) > 1:
            line = seen.of("step")[number - 1]["line"]
            yield found(line, number=number, batches=batches)
            return


def batch_in_each_step(events):
    """Return a rank's latest (loader's line, epoch, batch) in each of its steps."""
    batches = []
    latest = None, 0, 0
    for event in events:
        if event["kind"] == "weights" and len(event["place"]) > 2:
            latest = tuple(event["place"][1:])
        elif event["kind"] == "step":
            batches.append(latest)
    return batches
