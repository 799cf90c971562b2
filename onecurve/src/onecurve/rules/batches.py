"""The run hangs at the end of the epoch unless all ranks leave it after the same step,
and in an evaluation that calls a collective for each batch. It is an ERROR if the run
hangs. A rank may also skip a batch alone and go on with its next one, while other ranks
wait for its gradients.
"""

from itertools import takewhile

from onecurve.evidence.found import found
from onecurve.rules.different_collectives import way_to

LEVEL = "LOOK"
MESSAGE = "ranks have different numbers of batches {when}: {counts}"
FIX = "give all ranks the same number, or use Join"
RANKS = "own batches"
TOGETHER = "skip a batch on all ranks or on none: all_reduce what decides"


def find(seen):
    if seen.of("join"):
        return
    yield from in_evaluation(seen)
    begun = next(seen.together("begun", lambda one: one["trains"]), ())
    counts = [one["batches"] for one in begun]
    if len(set(counts)) > 1:
        passes = []
        for events, one in zip(seen.events, begun, strict=True):
            epoch = until("begun", one, events)
            passes.append(sum(event.get("grad", False) for event in epoch))
        if min(passes) < max(counts):  # else a rank repeats its batches
            yield found(begun[0]["line"], when="in an epoch", counts=counts)
    else:
        yield from until_a_step(seen)


def in_evaluation(seen):
    """Find evaluations of unequal lengths that call a collective for each batch."""
    begun = next(seen.together("begun", lambda one: not one["trains"]), ())
    counts = [one["batches"] for one in begun]
    if len(set(counts)) > 1 == len({one["line"] for one in begun}):
        read = until("read", begun[0], seen.events[0])
        if any(event.get("whole") for event in read):
            when = "in an evaluation that calls collectives"
            yield found(begun[0]["line"], when=when, counts=counts)


def until_a_step(seen):
    """Find ranks that have read different numbers of batches before the same step."""
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


def until(end, begun, events):
    """Return what a rank does from where its loader begins until that one's `end`."""
    last = end, begun["line"]
    after = events[events.index(begun) + 1 :]
    return takewhile(lambda one: (one["kind"], one.get("line")) != last, after)


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
