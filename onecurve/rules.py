"""The known mistakes, each found in what the ranks have written down.

A rule is a function of a Seen that yields Findings.
"""

import re

from onecurve import shares, steps
from onecurve.collectives import first_difference
from onecurve.findings import finding, of_each_rank

# In names: may differ by rank.
DIFFER = {"time", "seconds", "elapsed", "seed", "rank", "pid", "device", "gpu"}
DIFFER |= {"sec", "speed", "throughput", "memory", "mem"}
DIFFER |= {"lr", "rate"}  # of which the steps tell
SMALL = 1e-6  # relative: numbers that are closer are equal
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


def printed_numbers(seen, rank):
    """Return {(branch, which time): event} of the branches of a rank that print.

    Each says besides whether it is in the midst of an epoch of training.
    """
    table = {}
    training = False
    steps = 0
    for event in seen.events[rank]:
        steps += event["kind"] == "step"
        if event["kind"] in ("before_step", "read"):
            training = event["kind"] == "before_step"
        if event["kind"] == "numbers":
            place = event["branch"], event["times"]
            level = "LOOK" if training else None
            table[place] = {**event, "level": level, "steps": steps}
    return table


def numbers_of_rank_0(seen):
    """Numbers that some ranks print though the others have others."""
    tables = [printed_numbers(seen, rank) for rank in seen.ranks]
    calls = [call["name"] for call in seen.of("collective_call")]
    takers = seen.takers_of_branches()
    told = set()
    for place in sorted(set.intersection(*(set(table) for table in tables))):
        branch, _ = place
        events = [table[place] for table in tables]
        if len(takers[branch]) in (0, len(seen.ranks)):
            continue  # none takes it, or each: together, or in turn
        for text, values in differing([event["numbers"] for event in events]):
            line = events[0]["lines"][text]
            # what a list or a dict holds, only where the branch has no other
            held = "[" in text and branch in told
            if (line, text) not in told and not held:
                told |= {(line, text), branch}
                details = of_each_rank(f"{value:.6f}" for value in values)
                # after dist.reduce one rank has the sum, and may print it
                level = "LOOK" if "reduce" in calls else events[0]["level"]
                yield finding("printed", line, details, level, text=text)


def numbers_by_world(several, others, steps):
    """Numbers that rank 0 prints and that depend on the number of ranks.

    `others` are Seens of one rank that has done the same for so many `steps`; or of
    each rank's work done by one, where numbers are asked for in which these agree.
    """
    runs = [several, *others]
    lengths = [[one["length"] for one in seen.of("length")] for seen in runs]
    if any(one != lengths[0] for one in lengths):
        return  # what is divided by them differs, and is right
    ranks = [printed_numbers(several, rank) for rank in several.ranks]
    alone = [printed_numbers(seen, 0) for seen in others]
    told = set()
    for place in ranks[0]:
        tables = [table.get(place) for table in ranks + alone]
        if None in tables or tables[0]["steps"] > steps or not tables[0]["taken"]:
            continue
        numbers = [table["numbers"] for table in tables]
        own = {text for text, _ in differing(numbers[: len(ranks)])}
        for text, values in differing([numbers[0], *numbers[len(ranks) :]]):
            ours, *theirs = values
            known = close(min(theirs), max(theirs)) and text not in own | told
            # a sum over the ranks, which may be divided where it is printed
            is_sum = close(ours, len(ranks) * theirs[0])
            same = is_sum or close(ours, theirs[0])
            if known and ours != int(ours) and not same:
                told.add(text)
                line = tables[0]["lines"][text]
                details = [f"{len(ranks)} ranks: {ours:.6f}", f"one: {theirs[0]:.6f}"]
                yield finding("by_world", line, details, text=text)


def close(ours, theirs):
    """Return whether two numbers are equal but for rounding."""
    return abs(ours - theirs) <= SMALL * max(abs(ours), abs(theirs))


def differing(tables):
    """Yield (text, values) of expressions whose numbers differ between ranks."""
    for text in tables[0]:
        words = set(re.findall("[a-z]+", text.lower()))
        values = [table.get(text) for table in tables]
        if None in values or words & DIFFER:
            continue
        if max(values) - min(values) > SMALL * max(abs(value) for value in values):
            yield text, values


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


RULES = [
    steps.weights_differ,
    steps.parts_of_models,
    steps.parts_saved,
    steps.no_gradients,
    steps.gradients_zero,
    steps.left_out,
    steps.modes,
    steps.other_type,
    steps.schedules_differ,
    shares.samples_shared,
    shares.other_samples_shared,
    other_batches,
    shares.numbers_of_batches,
    shares.same_order,
    shares.same_stream,
    shares.same_random_numbers,
    steps.exchanges,
    steps.clipped_alone,
    shares.evaluated_twice,
    steps.evaluated_network,
    collectives_differ,
    gradient_cut,
    gaps,
    one_file,
    nothing_loaded,
    numbers_of_rank_0,
]
OF_TAKERS = [  # of the ranks that take batches of their own
    shares.samples_shared,
    shares.other_samples_shared,
    shares.numbers_of_batches,
    shares.same_random_numbers,
    shares.evaluated_twice,
]
OF_ONE = [  # one rank tells these
    steps.no_gradients,
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
