"""Augmentation, dropout or noise repeats on all ranks. The details name a generator."""

from collections import Counter, defaultdict

from onecurve.evidence.found import found
from onecurve.evidence.samples import rows_known, same_rows, sliced
from onecurve.evidence.seeds import seeded_alike_before

LEVEL = "ERROR"
MESSAGE = "ranks draw the same {what}"
FIX = "seed ranks with seed + epoch * world_size + rank"
RANKS = "own batches"
STATES = "save and load each rank's own state: all ranks load the same one here"
DRAWN = "random numbers for different samples"


def find(seen):
    lines = {epoch["line"] for epoch in seen.readings(0, True)}
    fetches = []
    for each in seen.on_all("fetch"):
        of_training = [one for one in each if one["line"] in lines]
        fetches.append(sorted(of_training, key=lambda one: one["worker"] or 0))
    passes = list(seen.training_passes())
    fetches = list(zip(*fetches, strict=False))
    epochs = seen.first_epochs()
    shared = len({tuple(epoch["indices"]) for epoch in epochs}) == 1
    if not (shared and sliced(seen, epochs[0]["sizes"][0])):
        yield from equal_states(seen, fetches, "drawn", "augmentation")
    loads = bool(lines)
    others = rows_known(passes) and not same_rows(passes)
    if loads or others:  # else the samples themselves are drawn
        level = None if loads else "LOOK"
        yield from equal_states(seen, passes, "before", DRAWN, level)
    if not same_rows(passes):  # the same samples may have the same noise
        what = "dropout or other noise in the network"
        yield from equal_states(seen, passes, "drawn", what)


def equal_states(seen, events, name, what, level=None):
    """Find generators with equal states on all ranks."""
    same = Counter()
    begun = {}  # generator -> the first equal draws
    first = []
    times = 0
    line = None
    for each in events:
        if each[0][name]:
            times += 1
            line = line or each[0]["line"]
        for generator, state in each[0][name].items():
            alike = all(one[name].get(generator) == state for one in each)
            same[generator] += alike
            if alike:
                begun.setdefault(generator, each)
            if alike and times == 1:
                first.append(generator)
    often = [name for name, count in same.items() if count > max(2, times / 3)]
    often += [name for name, count in same.items() if count == times <= 2]
    details = [f"generator {one}: equal {same[one]} of {times} times" for one in often]
    if first and not often:
        told = f"generator {', '.join(first)}: equal at first"
        details = [f"{told}, then ranks draw different amounts"]
        level = "LOOK"
    if details:
        generator = (often or first)[0]
        if generator == "random" and what == DRAWN:
            level = "LOOK"  # its single numbers may be meant for all samples
        cause = seeded_alike_before(seen, generator, begun[generator])
        details += [f"drawn at {line}"] if cause else []
        is_seed = not cause or (cause["seed"][0] == "[" and cause["seed"][1] != "(")
        fix = None if is_seed else STATES  # a whole state, such as a checkpoint's
        yield found(cause["line"] if cause else line, details, level, fix, what=what)


def find_by_world(comparison):
    """Find random numbers, one per sample, that are equal for different batches."""
    draws = [draws_of(events) for events in comparison.several.events]
    times = defaultdict(dict)  # line -> {pass: whether its draws are equal}
    for place in draws[0]:  # in order, to report the first line
        each = [one.get(place) for one in draws]
        rows = [one and one["rows"] for one in each]
        if None in each or any(one == rows[0] for one in rows[1:]):
            continue
        if all(one["constant"] for one in each):
            continue  # such as rare dropout's
        number, line, _ = place
        one_each = all(one["count"] == len(one["rows"]) for one in each)
        equal = one_each and len({one["digest"] for one in each}) == 1
        times[line][number] = times[line].get(number, False) or equal
    for line, equal in times.items():
        if len(equal) > 2 and all(equal.values()):
            told = f"equal in {len(equal)} of {len(equal)} passes"
            yield found(line, [told], "LOOK", what=DRAWN)
            return


def draws_of(events):
    """Return {place: facts} of a rank's draws for the samples of its next pass."""
    draws = {}
    drawn = []
    passes = 0
    for event in events:
        if event["kind"] == "drew":
            drawn.append(event)
        if event["kind"] == "pass" and event["grad"]:
            passes += 1
            size = len(event["rows"])
            fitting = [one for one in drawn if size > 1 and not one["count"] % size]
            for number, one in enumerate(fitting):
                draws[passes, one["line"], number] = {**one, "rows": event["rows"]}
            drawn = []
    return draws
