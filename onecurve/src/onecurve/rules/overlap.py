"""Each rank shuffles for itself, so some samples are used twice and others never. It is
a LOOK if the script draws or orders its batches itself.
"""

from itertools import pairwise

from onecurve.evidence import samples
from onecurve.evidence.found import found
from onecurve.evidence.origins import ORDERS
from onecurve.evidence.seeds import drawn_at

LEVEL = "ERROR"
MESSAGE = "samples overlap between ranks in an epoch"
FIX = "use DistributedSampler, or [rank::world_size] of one order that all ranks share"
FOLLOWS = ("added",)
ONCE = True
RANKS = "own batches"
ORIGIN = ORDERS
SEEDED = "draw them from a generator seeded with seed + rank"
WORKERS = "read a share in each worker: torch.utils.data.get_worker_info()"
SPLIT = "each rank splits the dataset differently, so others may evaluate its samples"


def find(seen):
    for wrong, epochs in samples.shares(seen):
        if wrong == samples.OVERLAP:
            lists = [epoch["indices"] for epoch in epochs]
            twice = samples.used_twice(lists)
            never = epochs[0]["size"] - len(set().union(*lists))
            told = f"{twice} are used by more than one rank, {never} by none"
            told = [samples.used_per_rank(epochs), told]
            line, fix = samples.dealt(epochs)
            told += [SPLIT] if fix else []
            yield found(line, told, fix=fix)
        elif wrong == samples.OWN_ORDER:
            lists = [epoch["contents"] for epoch in epochs]
            count = len(set().union(*lists))
            told = f"each rank orders the dataset differently: of {count} samples"
            told += f", {samples.used_twice(lists)} are used by more than one"
            yield found(epochs[0]["line"], [told], fix=samples.ALIKE)
    if samples.has_indices(seen):
        return
    streams = samples.first_streams(seen)
    yield from in_streams(seen, streams) if streams else by_hand(seen)


def in_streams(seen, epochs):
    """Find samples of streams, which have no indices, on several ranks or twice."""
    line = epochs[0]["dealt"]
    batches = epochs[0]["rows"]
    again = sum(one == other for one, other in pairwise(batches))
    often = samples.SHARED * len(batches) < again < len(batches) - 1
    if samples.same_stream(epochs):
        return
    workers = {event["worker"] for event in seen.of("fetch")} - {None}
    if often and len(workers) > 1:
        told = f"{again} of {len(batches)} batches on rank 0 repeat the previous one"
        yield found(line, [told], fix=WORKERS)
        return
    lists = [samples.flattened(epoch["rows"]) for epoch in epochs]
    told = samples.shared_by_ranks(lists)
    if told:
        yield found(line, [told], fix=samples.ALIKE)


def by_hand(seen):
    """Find samples on several ranks that the script draws or orders itself."""
    passes = list(seen.training_passes())
    if not samples.rows_known(passes) or samples.same_rows(passes):
        return
    lists = []
    for of_rank in zip(*passes, strict=True):
        one = samples.flattened(each["rows"] for each in of_rank)
        if one not in lists:  # ranks with equal samples may share a model
            lists.append(one)
    told = samples.shared_by_ranks(lists)
    if told:
        line, seeded = drawn_at(seen)
        fix = SEEDED if seeded else samples.ALIKE
        yield found(line, [told, *seeded], "LOOK", fix)
