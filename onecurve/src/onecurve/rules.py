"""The known mistakes, each found in what the ranks have written down.

A rule is a function of a Seen that yields Findings.
"""

from onecurve import computed, evaluation, printed, shares, steps, streams
from onecurve.findings import finding
from onecurve.seen import Seen

NO_MORE = "no further call"  # of the collectives that others call


def collectives_differ(seen):
    """Ranks that call different collectives, or in another order."""
    difference = seen.first_parting()
    if difference and not seen.of("join"):  # in which ranks take part unseen
        number, rank, first, other = difference
        details = []
        for one, call in (0, first), (rank, other):
            told = f"{call['name']} at {call['line']}" if call else NO_MORE
            details.append(f"rank {one}: {told}")
        line = (first or other)["line"]
        yield finding("parted", line, details, number=number)


def told_at_once(seen):
    """What an event of rank 0 is by itself: the first of each kind."""
    first = {}
    for event in seen.of("found"):
        first.setdefault(event["row"], event)
    for row, event in first.items():
        yield finding(row, event["line"], event["details"], **event["facts"])


def one_file(seen):
    """A file that several ranks write."""
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
    """Ranks that share the layers of a model, and take different batches.

    Not where the first layer is given a part of its input on each rank.
    """
    if any(event["parts"] for event in list(seen.of("split"))[:1]):
        return
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
    """Return the line that gives the ranks of a group other seeds at last, or None.

    Where they load their batches, these do not come from it.
    """
    if seen.readings(0, True):
        return None
    seeds = shares.seeds_set(Seen([seen.events[rank] for rank in group]))
    return next((line for line, alike in seeds.values() if not alike), None)


def same_inputs(seen):
    """Inputs that all ranks give to one of their networks, though batches differ.

    What never changes is no draw of random numbers.
    """
    passes = {}
    for each in seen.training_passes():
        passes.setdefault(each[0]["made"], []).append(each)
    alike = []
    for of_network in passes.values():
        rows = {tuple(each[0]["rows"]) for each in of_network}
        if len(rows) > 1 and () not in rows and shares.same_rows(of_network):
            alike.append(of_network[0][0]["line"])
    if alike and len(alike) < len(passes):
        what = "network inputs"
        yield finding("random", alike[0], level="LOOK", what=what)


def evaluated_by_hand(seen):
    """Evaluations that each rank makes of the same samples, without a DataLoader.

    What one line calls for is judged by itself: a game may be played to train.
    What is called before the training alone is none, but a model's making, say.
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
        if later and first["rows"] and shares.same_rows(passes):
            yield finding("evaluated", first["line"], size=len(first["rows"]))
            return


EACH = "each"  # rule of the ranks beside each other
TAKERS = "takers"  # of those that take batches of their own
ONE = "one"  # that one rank tells
RULES = {
    steps.weights_differ: EACH,
    steps.parts_of_models: EACH,
    steps.parts_saved: EACH,
    computed.no_gradients: ONE,
    computed.gradients_zero: EACH,
    told_at_once: ONE,
    steps.modes: EACH,
    computed.not_finite: ONE,
    evaluation.evaluated_in_training: ONE,
    steps.saved_without: ONE,
    steps.schedules_differ: EACH,
    shares.samples_shared: TAKERS,
    streams.other_samples_shared: TAKERS,
    shares.never_taken: TAKERS,
    other_batches: EACH,
    shares.same_order: ONE,
    streams.same_stream: ONE,
    streams.same_order_by_hand: ONE,
    shares.same_random_numbers: TAKERS,
    computed.exchanges: EACH,
    computed.last_not_exchanged: EACH,
    computed.clipped_alone: EACH,
    computed.parts_scaled: EACH,
    same_inputs: TAKERS,
    evaluation.evaluated_twice: TAKERS,
    evaluated_by_hand: TAKERS,
    evaluation.evaluated_network: EACH,
    steps.statistics: EACH,
    collectives_differ: EACH,
    one_file: EACH,
    printed.decisions: EACH,
    printed.numbers_of_rank_0: EACH,
}


def findings(seen):
    """Return what all rules find in a run."""
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
