"""The run hangs at the end of the epoch unless all ranks leave it after the same step.
It is an ERROR if the run hangs. A rank may also skip a batch alone and go on with its
next one, while other ranks wait for its gradients.
"""

from onecurve.evidence.found import found
from onecurve.rules.different_collectives import way_to

LEVEL = "LOOK"
MESSAGE = "ranks have different numbers of batches {when}: {counts}"
FIX = "give all ranks the same number, or use Join"
RANKS = "own batches"
TOGETHER = "skip a batch on all ranks or on none: all_reduce what decides"


def find(seen):
    first = next(seen.together("begun", lambda one: one["trains"]), ())
    counts = [one["batches"] for one in first]
    if seen.of("join"):
        return
    if len(set(counts)) > 1:
        yield found(first[0]["line"], when="in an epoch", counts=counts)
        return
    taken = [taken_by_steps(events) for events in seen.events]
    for number, each in enumerate(zip(*taken, strict=False), 1):
        if None in each or len({tuple(epoch) for *epoch, _ in each}) > 1:
            return  # a rank may begin its loader again while others go on
        counts = [batch for *_, batch in each]
        if len(set(counts)) > 1:
            ways = [way_to(number, events, "step") for events in seen.events]
            most, least = (ways[counts.index(one(counts))] for one in (max, min))
            step = seen.values("step", "line")[number - 1]
            both = [line for line, _ in least]
            new = [one for one, to in most if one in both and [one, to] not in least]
            told = {"when": f"until step {number}", "counts": counts}
            yield found([step, *new][-1], fix=TOGETHER, **told)
            return


def taken_by_steps(events):
    """Return a loader's line, its epoch and the batch of each step, or None without."""
    latest = None
    places = []
    for event in events:
        if event["kind"] == "weights":
            latest = event["place"][1:] or None
        elif event["kind"] == "step":
            places.append(latest)
    return places
