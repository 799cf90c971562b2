"""Rules for samples without indices, from streams or drawn by the script."""

from collections import Counter, defaultdict
from itertools import pairwise

from onecurve.rules.findings import finding
from onecurve.rules.sampling import (
    ALIKE,
    rows_known,
    same_rows,
    seeds_set_alike,
    sliced,
)

EPOCH = 3  # minimum number of batches or steps with an order
FEW = 6  # samples that may be equal by chance
SHARED = 0.1  # fraction of a stream
OWN_ORDERS = "each rank draws its own order of as many samples as 1 process"
SEEDED = "draw them from a generator seeded with seed + rank"
DRAWN = "random numbers for different samples"
ANEW = "draw a new order in each epoch: add the epoch to the seed"
WORKERS = "read a share in each worker: torch.utils.data.get_worker_info()"


def other_samples_shared(seen):
    """Find equal samples on all ranks, from streams or without a DataLoader."""
    if any(epoch["indices"] for epoch in seen.readings(0, True)):
        return
    streams = [seen.streamed(rank)[:1] for rank in seen.ranks]
    if all(streams):
        yield from judge_streams(seen, [epochs[0] for epochs in streams])
        return
    passes = list(seen.training_passes())
    if rows_known(passes) and not same_rows(passes):
        yield from samples_by_hand(seen, passes)
    if not passes or not seen.of("step"):
        return
    noise = any(one["drawn"] != each[0]["drawn"] for each in passes for one in each)
    if losses_differ(seen) and not noise:
        return  # ranks share the work on these samples
    if same_rows(passes):
        yield finding("samples", *drawn_at(seen))


def drawn_at(seen):
    """Return (line, details) of batches drawn after all ranks set the same seed."""
    line = seen.of("pass")[0]["line"]
    seeded = seeds_set_alike(seen)
    for one in seen.of("pass"):
        for generator in one["before"]:
            if generator in seeded:
                return seeded[generator], [f"drawn for {line}"]
    return line, []


def samples_by_hand(seen, passes):
    """Find samples on several ranks that the script draws or orders itself."""
    lists = []
    for of_rank in zip(*passes, strict=True):
        one = flattened(each["rows"] for each in of_rank)
        if one not in lists:  # ranks with equal samples may share a model
            lists.append(one)
    once, twice = shared_once(lists)
    if twice > max(SHARED * once, FEW):
        told = f"of each rank's first {once} samples, {twice} are on more than one rank"
        line, seeded = drawn_at(seen)
        repair = SEEDED if seeded else ALIKE
        yield finding("overlap", line, [told, *seeded], level="LOOK", repair=repair)


def shared_once(lists):
    """Return (samples before a rank repeats one, how many are on several ranks)."""
    once = min(once_only(one) for one in lists)
    counts = Counter(row for one in lists for row in one[:once])
    return once, sum(count > 1 for count in counts.values())


def judge_streams(seen, epochs):
    """Judge the ranks' samples of streams, which have no indices."""
    line = epochs[0]["dealt"]
    lists = [flattened(epoch["rows"]) for epoch in epochs]
    shortest = min(len(one) for one in lists)
    if all(one[:shortest] == lists[0][:shortest] for one in lists):
        if not sliced(seen, len(epochs[0]["rows"][0])):
            yield finding("samples", line)
        return
    batches = epochs[0]["rows"]
    again = sum(one == other for one, other in pairwise(batches))
    if SHARED * len(batches) < again < len(batches) - 1 and seen.workers(0) > 1:
        told = f"{again} of {len(batches)} batches on rank 0 repeat the previous one"
        yield finding("overlap", line, [told], repair=WORKERS)
        return
    once, twice = shared_once(lists)
    if twice > max(SHARED * once, FEW):
        told = f"of each rank's first {once} samples, {twice} are on more than one rank"
        yield finding("overlap", line, [told], repair=ALIKE)


def flattened(batches):
    """Return the digests of all batches' samples."""
    return [row for rows in batches for row in rows]


def once_only(rows):
    """Return the number of samples before the first repeated one."""
    met = set()
    for number, row in enumerate(rows):
        if row in met:
            return number
        met.add(row)
    return len(rows)


def same_stream(seen):
    """Find streams that restart with the same samples, in or after an epoch."""
    epochs = seen.streamed(0)
    for epoch in epochs[:1]:
        again = [flattened(other["rows"]) for other in epochs[1:]]
        first = flattened(epoch["rows"])
        if first[:1] and first[0] in first[1:]:
            again.append(first[first.index(first[0], 1) :])
        for other in again:
            length = min(len(first), len(other))
            if length > FEW and first[:length] == other[:length]:
                yield finding("order", epoch["dealt"], level="LOOK")
                return


def same_order_by_hand(seen):
    """Find epochs without a DataLoader that use the same batches in the same order."""
    shuffles = any(event["shuffles"] for event in seen.of("source"))
    if seen.readings(0, True) or not shuffles:
        return
    passes = [event for event in seen.of("pass") if event["grad"]]
    length = period([event["rows"] for event in passes])
    if length >= EPOCH:
        told = [f"the same {length} batches repeat"]
        yield finding("order", passes[0]["line"], told, level="LOOK", repair=ANEW)


def period(batches):
    """Return after how many batches, lists of samples, the sequence repeats, or 0."""
    for length in range(1, len(batches) // 2 + 1):
        if batches[0] and batches[:length] == batches[length : 2 * length]:
            return length
    return 0


def own_orders(one):
    """Find ranks that each draw their own order of all samples of one process.

    `one` is its Seen. Masks and such, drawn for a single step or sample, don't count.
    """
    if plays(one.events[0]):
        return
    lines = Counter(event["line"] for event in one.of("own_orders"))
    for line, times in lines.items():
        if line and EPOCH * times <= len(one.of("step")):
            yield finding("overlap", line, [OWN_ORDERS], level="LOOK", repair=ALIKE)
            return


def plays(events):
    """Return whether a rank's network creates its training data, as in a game."""
    for event in events:
        if event["kind"] == "step":
            return False
        draws = event["kind"] == "pass" and (event["before"] or event["drawn"])
        if draws and not event["grad"]:
            return True
    return False


def losses_differ(seen):
    """Return whether ranks compute different losses, as on parts of a sequence."""
    for each in seen.together("backward"):
        return len({one["loss"] for one in each}) > 1
    return False


def drawn_alike(seen):
    """Find random numbers that are equal on all ranks though their batches differ.

    There is one per sample; or they start equal on ranks with more and fewer samples.
    """
    draws = [draws_of(events) for events in seen.events]
    found = defaultdict(set)  # line -> passes with equal draws
    times = defaultdict(set)  # line -> passes with draws
    for place in draws[0]:  # in order, to report the first line
        if not all(place in one for one in draws):
            continue
        each = [one[place] for one in draws]
        rows = [one["rows"] for one in each]
        if any(one == rows[0] for one in rows[1:]):
            continue
        number, line, _ = place
        if line not in times and begin_alike(each):
            told = "equal at first, then ranks draw different amounts"
            yield finding("random", line, [told], "LOOK", what=DRAWN)
            return
        times[line].add(number)
        if are_alike(each):
            found[line].add(number)
    for line, passes in found.items():
        if len(passes) > 2 and passes == times[line]:
            told = f"equal in {len(passes)} of {len(passes)} passes"
            yield finding("random", line, [told], "LOOK", what=DRAWN)
            return


def are_alike(each):
    """Return whether all ranks draw the same numbers, one per sample."""
    one_each = all(one["count"] == len(one["rows"]) for one in each)
    return one_each and len({one["digest"] for one in each}) == 1


def begin_alike(each):
    """Return whether draws start equal on ranks with unequal numbers of samples."""
    sizes = [len(one["rows"]) for one in each]
    times = {one["count"] / size for one, size in zip(each, sizes, strict=True)}
    begin = {one["begin"] for one in each}
    return len(set(sizes)) > 1 and len(times) == 1 and len(begin) == 1


def draws_of(events):
    """Return {place: facts} of a rank's draws for the samples of its next pass."""
    found = {}
    drawn = []
    passes = 0
    for event in events:
        if event["kind"] == "drew":
            drawn.append(event)
        if event["kind"] == "pass" and event["grad"]:
            passes += 1
            rows = event["rows"]
            some = len(rows) > 1
            fitting = [one for one in drawn if some and not one["count"] % len(rows)]
            for number, one in enumerate(fitting):
                place = passes, one["line"], number
                found[place] = {**one, "rows": rows}
            drawn = []
    return found
