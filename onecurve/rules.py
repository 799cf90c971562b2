"""The known mistakes, each found in what the ranks have written down.

A rule is a function of a Seen that yields Findings.
"""

from onecurve import computed, printed, shares, steps
from onecurve.collectives import first_difference
from onecurve.findings import finding

NO_MORE = "no more"  # of the collectives that others call


def collectives_differ(seen):
    """Ranks that call different collectives, or in another order."""
    difference = first_difference(seen.collective_calls())
    if difference and not seen.of("join"):  # in which ranks take part unseen
        number, rank, first, other = difference
        details = []
        for one, call in (0, first), (rank, other):
            told = f"{call['name']} at {call['line']}" if call else NO_MORE
            details.append(f"rank {one}: {told}")
        line = (first or other)["line"]
        yield finding("parted", line, details, number=number)


def gradient_cut(seen):
    """Gathered features through which no gradient flows back."""
    for event in seen.of("cut"):
        details = ["on one rank neither: the gradients of 1 and more ranks agree"]
        yield finding("cut", event["line"], details, name=event["name"])
        return


def gaps(seen):
    """Collectives that are given tensors with gaps, which gloo fills or ignores."""
    for event in seen.of("gaps")[:1]:
        yield finding("gaps", event["line"], name=event["name"])


def one_file(seen):
    """A file that several ranks write."""
    writers = {}
    for rank in seen.ranks:
        for event in seen.of("file", rank):
            writers.setdefault(event["path"], {})[rank] = event["line"]
    for path, lines in writers.items():
        if len(lines) > 1:
            ranks = sorted(lines)
            yield finding("file", lines[ranks[0]], ranks=ranks, path=path)


def nothing_loaded(seen):
    """A file of which not one name is the model's."""
    for event in seen.of("loaded_nothing"):
        yield finding("loaded", event["line"], [f"such as {event['name']}"])
        return


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
                yield finding("other_batches", passes[group[0]]["line"])
                return


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
        what = "inputs of a network"
        yield finding("random", alike[0], level="LOOK", what=what)


def evaluated_by_hand(seen):
    """Evaluations that each rank makes of the same samples, without a DataLoader."""
    passes = []
    for each in seen.on_all("pass"):
        passes.append([one for one in each if not one["grad"] and not one["reading"]])
    pairs = list(zip(*passes, strict=False))
    if pairs and pairs[0][0]["rows"] and shares.same_rows(pairs):
        first = pairs[0][0]
        yield finding("evaluated", first["line"], size=len(first["rows"]))


RULES = [
    steps.weights_differ,
    steps.parts_of_models,
    steps.parts_saved,
    computed.no_gradients,
    computed.gradients_zero,
    steps.left_out,
    steps.modes,
    computed.not_finite,
    steps.evaluated_in_training,
    computed.clipped_scaled,
    steps.saved_without,
    steps.other_type,
    steps.schedules_differ,
    shares.samples_shared,
    shares.other_samples_shared,
    other_batches,
    shares.numbers_of_batches,
    shares.same_order,
    shares.same_stream,
    shares.same_random_numbers,
    computed.exchanges,
    computed.last_not_exchanged,
    computed.clipped_alone,
    same_inputs,
    shares.evaluated_twice,
    evaluated_by_hand,
    steps.evaluated_network,
    collectives_differ,
    gradient_cut,
    gaps,
    one_file,
    nothing_loaded,
    printed.decisions,
    printed.means_of_means,
    printed.numbers_of_rank_0,
]
OF_TAKERS = [  # of the ranks that take batches of their own
    shares.samples_shared,
    shares.other_samples_shared,
    shares.numbers_of_batches,
    shares.same_random_numbers,
    same_inputs,
    shares.evaluated_twice,
    evaluated_by_hand,
]
OF_ONE = [  # one rank tells these
    computed.no_gradients,
    computed.not_finite,
    steps.evaluated_in_training,
    computed.clipped_scaled,
    steps.saved_without,
    shares.same_order,
    shares.same_stream,
    gradient_cut,
    nothing_loaded,
]


def findings(seen):
    """Return what all rules find in a run."""
    meet = seen.of("ddp") or seen.of("split") or seen.of("collective_call")
    if seen.of("step") and not meet and len(seen.ranks) > 1:
        return [finding("apart", seen.of("step")[0]["line"])]
    takers = seen.takers()
    found = []
    for rule in RULES:
        looked_at = takers if rule in OF_TAKERS else seen
        if len(looked_at.ranks) > 1 or rule in OF_ONE:
            found += rule(looked_at)
    return found
