"""All rules. A rule is a function that takes a Seen and yields Findings."""

from onecurve.rules import (
    backward,
    evaluation,
    printed,
    sampling,
    schedules,
    streams,
    weights,
)
from onecurve.rules.findings import finding
from onecurve.rules.seen import Seen

NO_MORE = "no further call"  # to collectives that other ranks call


def collectives_differ(seen):
    """Find ranks that call different collectives, or in another order."""
    difference = seen.first_parting()
    if difference and not seen.of("join"):  # join() calls collectives unseen
        number, rank, first, other = difference
        details = []
        for one, call in (0, first), (rank, other):
            told = f"{call['name']} at {call['line']}" if call else NO_MORE
            details.append(f"rank {one}: {told}")
        line = (first or other)["line"]
        yield finding("parted", line, details, number=number)


def told_at_once(seen):
    """Report rank 0's `found` events, the first of each kind."""
    first = {}
    for event in seen.of("found"):
        first.setdefault(event["row"], event)
    for row, event in first.items():
        yield finding(row, event["line"], event["details"], **event["facts"])


def one_file(seen):
    """Find files that several ranks write."""
    writers = {}
    for rank in seen.ranks:
        for event in seen.of("file", rank):
            writers.setdefault(event["path"], {})[rank] = event
    for path, events in writers.items():
        if len(events) > 1:
            ranks = sorted(events)
            first = events[ranks[0]]
            told = [f"called at {first['by']}"] if first["by"] else []
            yield finding("file", first["line"], told, ranks=ranks, path=path)


def other_batches(seen):
    """Find ranks that share a model's layers but train on different batches."""
    if any(event["parts"] for event in list(seen.of("split"))[:1]):
        return  # the first layer expects a part of the input on each rank
    for passes in seen.training_passes():
        for group in seen.groups():
            rows = [passes[rank]["rows"] for rank in group]
            if any(one != rows[0] for one in rows):
                line = passes[group[0]]["line"]
                own = seeds_by_rank(seen, group)
                told = [f"used at {line}"] if own else []
                yield finding("other_batches", own or line, told)
                return


def seeds_by_rank(seen, group):
    """Return the line that last seeds a group's ranks differently, or None."""
    if seen.readings(0, True):
        return None  # loaders don't draw batches from these seeds
    seeds = sampling.seeds_set(Seen([seen.events[rank] for rank in group]))
    return next((line for line, alike in seeds.values() if not alike), None)


def same_inputs(seen):
    """Find a network's inputs that vary but are equal on all ranks, unlike batches."""
    passes = {}
    for each in seen.training_passes():
        passes.setdefault(each[0]["made"], []).append(each)
    alike = []
    for of_network in passes.values():
        rows = {tuple(each[0]["rows"]) for each in of_network}
        if len(rows) > 1 and () not in rows and sampling.same_rows(of_network):
            alike.append(of_network[0][0]["line"])
    if alike and len(alike) < len(passes):
        yield finding("random", alike[0], level="LOOK", what="network inputs")


def evaluated_by_hand(seen):
    """Find evaluations of the same samples on all ranks, without a DataLoader.

    Each caller is judged by itself: a game may be played to train. Passes before the
    first step don't count: they may create a model.
    """
    begun = [step["time"] for step in seen.of("step")[:1]]
    by_hand = seen.together("pass", lambda one: not (one["grad"] or one["reading"]))
    calls = {}
    for each in by_hand:
        callers = {one["caller"] for one in each}
        if len(callers) == 1:
            calls.setdefault(callers.pop(), []).append(each)
    for passes in calls.values():
        first, last = passes[0][0], passes[-1][0]
        later = all(last["time"] > time for time in begun)
        if later and first["rows"] and sampling.same_rows(passes):
            yield finding("evaluated", first["line"], size=len(first["rows"]))
            return


EACH = "each"  # compares all ranks
TAKERS = "takers"  # compares ranks that have their own batches
ONE = "one"  # needs only one rank
RULES = {
    weights.weights_differ: EACH,
    weights.parts_of_models: EACH,
    weights.parts_saved: EACH,
    backward.no_gradients: ONE,
    backward.gradients_zero: EACH,
    told_at_once: ONE,
    weights.modes: EACH,
    backward.not_finite: ONE,
    evaluation.evaluated_in_training: ONE,
    weights.saved_without: ONE,
    schedules.schedules_differ: EACH,
    sampling.samples_shared: TAKERS,
    streams.other_samples_shared: TAKERS,
    sampling.never_taken: TAKERS,
    backward.batches_skipped: TAKERS,
    other_batches: EACH,
    sampling.same_order: ONE,
    streams.same_stream: ONE,
    streams.same_order_by_hand: ONE,
    sampling.same_random_numbers: TAKERS,
    backward.exchanges: EACH,
    backward.last_not_exchanged: EACH,
    backward.clipped_alone: EACH,
    backward.parts_scaled: EACH,
    same_inputs: TAKERS,
    evaluation.evaluated_twice: TAKERS,
    evaluated_by_hand: TAKERS,
    evaluation.evaluated_network: EACH,
    weights.statistics: EACH,
    collectives_differ: EACH,
    one_file: EACH,
    printed.decisions: EACH,
    printed.numbers_of_rank_0: EACH,
}


def findings(seen):
    """Return all rules' findings."""
    meet = seen.of("ddp") or seen.of("split") or seen.of("collective_call")
    if seen.of("step") and not meet and len(seen.ranks) > 1:
        return [finding("apart", seen.of("step")[0]["line"])]
    takers = seen.takers()
    found = []
    for rule, whose in RULES.items():
        looked_at = takers if whose == TAKERS else seen
        if len(looked_at.ranks) > 1 or whose == ONE:
            found += rule(looked_at)
    return found
