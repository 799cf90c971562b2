"""Rules: samples that have no indices: of streams, or drawn by the script itself."""

from collections import Counter, defaultdict
from itertools import pairwise

from onecurve.findings import finding
from onecurve.shares import ALIKE, rows_known, same_rows, seeds_set_alike, sliced

EPOCH = 3  # batches, or steps, at least: it has an order
FEW = 6  # samples that may be equal by chance
SHARED = 0.1  # of a stream
OWN_ORDERS = "each rank draws its own order of as many samples as 1 process"
SEEDED = "draw them from a generator seeded with seed + rank"
DRAWN = "random numbers for different samples"
ANEW = "draw a new order in each epoch: add the epoch to the seed"
WORKERS = "read a share in each worker: torch.utils.data.get_worker_info()"


def other_samples_shared(seen):
    """The same samples on all ranks, of a stream or without a DataLoader."""
    if any(epoch["indices"] for epoch in seen.readings(0, True)):
        return
    streams = [seen.streamed(rank)[:1] for rank in seen.ranks]
    if all(streams):
        yield from judge_streams(seen, [epochs[0] for epochs in streams])
        return
    passes = list(seen.training_passes())
    if rows_known(passes) and not same_rows(passes):
        yield from samples_by_hand(seen, passes)
    drawn = any(one["drawn"] for one in seen.of("pass"))
    if not passes or not seen.of("step") or (losses_differ(seen) and not drawn):
        return
    if same_rows(passes):
        yield finding("samples", *drawn_at(seen))


def drawn_at(seen):
    """Return (line, details) of batches that are drawn: the seed that all ranks set."""
    line = seen.of("pass")[0]["line"]
    seeded = seeds_set_alike(seen)
    for one in seen.of("pass"):
        for generator in one["before"]:
            if generator in seeded:
                return seeded[generator], [f"drawn for {line}"]
    return line, []


def samples_by_hand(seen, passes):
    """Samples that several ranks train on, which the script draws or orders itself.

    A rank that always has those of another may share its model.
    """
    lists = []
    for of_rank in zip(*passes, strict=True):
        one = flattened(each["rows"] for each in of_rank)
        if one not in lists:
            lists.append(one)
    once, twice = shared_once(lists)
    if twice > max(SHARED * once, FEW):
        told = f"of each rank's first {once} samples, {twice} are on more than one rank"
        line, seeded = drawn_at(seen)
        repair = SEEDED if seeded else ALIKE
        yield finding("overlap", line, [told, *seeded], level="LOOK", repair=repair)


def shared_once(lists):
    """Return (number of samples that are looked at, of those that several ranks have).

    They are looked at until a rank has one again: in a new epoch, say, in which those
    of the others come to it.
    """
    once = min(once_only(one) for one in lists)
    counts = Counter(row for one in lists for row in one[:once])
    return once, sum(count > 1 for count in counts.values())


def judge_streams(seen, epochs):
    """Judge what the ranks take of streams: by the samples, which have no indices."""
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
    """Return the digests of the samples of all batches."""
    return [row for rows in batches for row in rows]


def once_only(rows):
    """Return how many samples come before the first one that has been there already."""
    met = set()
    for number, row in enumerate(rows):
        if row in met:
            return number
        met.add(row)
    return len(rows)


def same_stream(seen):
    """Streams that begin anew, in an epoch or in its midst, with the same samples."""
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
    """Epochs without a DataLoader of the same batches, in the same order."""
    shuffles = any(event["shuffles"] for event in seen.of("source"))
    if seen.readings(0, True) or not shuffles:
        return
    passes = [event for event in seen.of("pass") if event["grad"]]
    length = period([event["rows"] for event in passes])
    if length >= EPOCH:
        told = [f"the same {length} batches repeat"]
        yield finding("order", passes[0]["line"], told, level="LOOK", repair=ANEW)


def period(batches):
    """Return after how many batches, samples in lists, the same ones come again, or 0.

    All of them, in the same order.
    """
    for length in range(1, len(batches) // 2 + 1):
        if batches[0] and batches[:length] == batches[length : 2 * length]:
            return length
    return 0


def own_orders(one):
    """Ranks that each draw an order of their own, of all that one process orders.

    `one` is a Seen of that process. An order for some steps is meant: what is drawn
    for a step or a sample, as a mask, is none.
    """
    if plays(one.events[0]):
        return
    lines = Counter(event["line"] for event in one.of("own_orders"))
    for line, times in lines.items():
        if line and EPOCH * times <= len(one.of("step")):
            yield finding("overlap", line, [OWN_ORDERS], level="LOOK", repair=ALIKE)
            return


def plays(events):
    """Return whether a rank makes what it trains on by its network, as by a game."""
    for event in events:
        if event["kind"] == "step":
            return False
        draws = event["kind"] == "pass" and (event["before"] or event["drawn"])
        if draws and not event["grad"]:
            return True
    return False


def losses_differ(seen):
    """Return whether ranks compute other losses: such as of other parts of a text."""
    for each in seen.together("backward"):
        return len({one["loss"] for one in each}) > 1
    return False


def drawn_alike(seen):
    """Random numbers for a batch that are the same on all ranks, whose batches are not.

    So many as the batch has samples: what is drawn for all ranks' is more. Or so many
    for each of a rank's samples, where they are more on one rank: then alike at first.
    """
    draws = [draws_of(events) for events in seen.events]
    found = defaultdict(set)  # line -> passes for which it draws alike
    times = defaultdict(set)  # and for which it draws
    for place in draws[0]:  # in this order, so that the first line is told
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
    """Return whether all ranks draw the same: a number for each of their samples."""
    one_each = all(one["count"] == len(one["rows"]) for one in each)
    return one_each and len({one["digest"] for one in each}) == 1


def begin_alike(each):
    """Return whether ranks draw alike at first, though not so often.

    Each draws as many for each of its samples, of which one rank has more.
    """
    sizes = [len(one["rows"]) for one in each]
    times = {one["count"] / size for one, size in zip(each, sizes, strict=True)}
    begin = {one["begin"] for one in each}
    return len(set(sizes)) > 1 and len(times) == 1 and len(begin) == 1


def draws_of(events):
    """Return {place: facts} of what a rank draws for the samples of its next pass."""
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
