"""Mistakes in which samples a rank takes, and in which order."""

from collections import Counter

from tools.inspect.seen import Finding, key

MOST = 0.75  # of the samples: some scripts leave out what fills no batch


def sliced_by_hand(seen):
    """Return whether the ranks put different samples through the network.

    Some scripts load the whole batch on each rank, and take a rank's part of it.
    """
    equal = 0
    different = 0
    for passes in seen.together("pass"):
        if all(one["grad"] and one["rows"] for one in passes):
            sets = [set(one["rows"]) for one in passes]
            equal += bool(set.intersection(*sets))
            different += not set.intersection(*sets)
    return different > 0 and equal == 0


def samples_shared(seen):
    """Samples that several ranks train on in the same epoch, or none does."""
    readings = [seen.readings(rank, True) for rank in seen.ranks]
    for epochs in zip(*readings, strict=False):
        if any(epoch["indices"] is None for epoch in epochs):
            continue
        yield from shares(seen, epochs)
        return


def shares(seen, epochs):
    """Judge the ranks' shares of an epoch of training."""
    lists = [epoch["indices"]["indices"] for epoch in epochs]
    first = epochs[0]["indices"]
    line = epochs[0]["line"]
    if not all(epoch["indices"]["complete"] for epoch in epochs):
        return
    if len({epoch["indices"]["identity"] for epoch in epochs}) > 1:
        return  # each rank has a data set of its own
    counts = Counter(index for one in lists for index in set(one))
    twice = sum(count > 1 for count in counts.values())
    size = first["size"]
    details = [f"{size} samples, {[len(one) for one in lists]} taken by the ranks"]
    drawn_again = first["replacement"] or any(len(set(o)) < len(o) for o in lists)
    if all(one == lists[0] for one in lists):
        if sliced_by_hand(seen):
            return
        what = "every rank trains on the same samples, in the same order"
        see = "04_ddp: pass a sampler that gives each rank its share"
        yield Finding("ERROR", what, line, details, see)
    elif not drawn_again and twice >= len(lists):
        none = size - len(counts)
        details.append(f"{twice} are taken by several ranks, {none} by none")
        what = "the ranks' shares of an epoch overlap"
        see = "04_ddp: DistributedSampler, or [rank::world_size] of one order for all"
        yield Finding("ERROR", what, line, details, see)
    elif not drawn_again and len(counts) < MOST * first["offered"]:
        what = f"{len(counts)} of {first['offered']} samples are taken by a rank"
        yield Finding("LOOK", what, line, [], "is the sampler told how many ranks are?")


def stream_shared(seen):
    """The same samples of a stream on several ranks."""
    streams = [one for one in seen.of("reading") if one["stream"]]
    if not streams or sliced_by_hand(seen):
        return
    lines = {one["line"] for one in streams}
    rows = []
    for batches in seen.on_all("batch"):
        ours = [one for one in batches if one["line"] in lines]
        rows.append({row for one in ours for row in one["rows"]})
    same = len(set.intersection(*rows))
    most = max(len(one) for one in rows)
    if same > most / 2:
        details = [f"{same} of {most} samples that were read are the same"]
        what = "every rank reads the whole stream"
        see = "exercise 32: every world_size-th sample, from the rank-th"
        yield Finding("ERROR", what, streams[0]["line"], details, see)


def own_batches_shared(seen):
    """The same samples on all ranks, of a script without a DataLoader."""
    if seen.readings(0, True) or not seen.of("step"):
        return
    passes = [[one for one in each if one["grad"]] for each in seen.on_all("pass")]
    together = [each for each in zip(*passes, strict=False) if each[0]["rows"]]
    same = [each for each in together if all_equal(one["rows"] for one in each)]
    if same and len(same) == len(together):
        what = "every rank trains on the same samples, in the same order"
        see = "draw them on each rank by a generator of its own: seed + rank"
        yield Finding("ERROR", what, same[0][0]["line"], [], see)


def all_equal(values):
    """Return whether all values are equal."""
    values = list(values)
    return all(value == values[0] for value in values)


def numbers_of_batches(seen):
    """Ranks that have more batches in an epoch than others."""
    readings = [seen.readings(rank, True) for rank in seen.ranks]
    for epochs in zip(*readings, strict=False):
        if any(epoch["indices"] is None for epoch in epochs):
            continue
        counts = [len(epoch["indices"]["sizes"]) for epoch in epochs]
        if len(set(counts)) > 1:
            what = f"the ranks have {counts} batches in an epoch: the last ones wait"
            see = "give all ranks the same number, or use Join"
            yield Finding("ERROR", what, epochs[0]["line"], [], see)
            return


def same_order(seen):
    """Two epochs of training that take the samples in the same order."""
    orders = {}
    for epoch in seen.readings(0, True):
        if epoch["indices"] and epoch["indices"]["complete"]:
            key = epoch["line"], epoch["indices"]["identity"]
            orders.setdefault(key, []).append(epoch["indices"])
    for (line, _), epochs in orders.items():
        if len(epochs) < 2 or epochs[0]["indices"] != epochs[1]["indices"]:
            continue
        indices = epochs[0]["indices"]
        if indices == sorted(indices):
            what = "the samples are not shuffled"
            yield Finding("LOOK", what, line)
        else:
            what = "every epoch takes the samples in the same order"
            see = "04_ddp: sampler.set_epoch(epoch) before each epoch"
            yield Finding("ERROR", what, line, [], see)


def evaluated_twice(seen):
    """Evaluations that count samples twice, or leave some out."""
    evaluations = {}
    for rank in seen.ranks:
        for epoch in seen.readings(rank, False):
            indices = epoch["indices"]
            if indices and indices["complete"] and indices["identity"]:
                place = indices["identity"], key(epoch)
                evaluations.setdefault(place, {})[rank] = indices
    told = set()
    for (_, (line, *_)), shares in evaluations.items():
        if len(shares) > 1 and line not in told:
            told.add(line)
            yield from judge_evaluation(line, shares)


def judge_evaluation(line, shares):
    """Judge which samples each rank evaluates: {rank: event `indices`}."""
    lists = [one["indices"] for one in shares.values()]
    size = next(iter(shares.values()))["size"]
    counts = Counter(index for one in lists for index in one)
    twice = sum(count - 1 for count in counts.values())
    more = len(lists) + 1
    padding = {one["sampler"] for one in shares.values()} == {"DistributedSampler"}
    if all(sorted(one) == sorted(lists[0]) for one in lists):
        what = f"every rank evaluates all {len(lists[0])} samples"
        yield Finding("SLOW", what, line, [], "05_ddp_inference: each rank its share")
    elif 0 < twice:
        what = f"the evaluation counts {twice} of {size} samples twice"
        see = "05_ddp_inference: Subset(test, range(rank, len(test), world_size))"
        yield Finding("ERROR", what, line, [], see)
    elif padding and size % more:
        what = f"on {more} ranks DistributedSampler evaluates {-size % more} twice"
        details = [f"{size} samples; {len(lists)} ranks are exact"]
        yield Finding("LOOK", what, line, details)
