"""Rules: which samples and which weights the ranks evaluate."""

from onecurve.rules.findings import finding
from onecurve.rules.seen import first_split


def evaluated_twice(seen):
    """Find evaluations that count samples twice or run in full on every rank."""
    evaluations = {}
    for rank in seen.ranks:
        for epoch in seen.readings(rank, False):
            if epoch["indices"] and epoch["identity"]:
                place = epoch["line"], epoch["number"], epoch["identity"]
                evaluations.setdefault(place, []).append(epoch)
    told = set()
    calls = seen.of("collective_call")
    by = {call["by"] for call in calls}
    if "gather_for_metrics" in by:  # accelerate's, which drops duplicates
        return
    # after gathering, a script may drop duplicate samples
    gathers = any("gather" in call["name"] for call in calls)
    merged = {event["twice"] for event in seen.of("gathered")}  # by sample numbers
    for (line, _, _), epochs in evaluations.items():
        if len(epochs) > 1 and line not in told:
            told.add(line)
            yield from judge_evaluation(line, epochs, gathers, merged)


def judge_evaluation(line, epochs, may_drop, merged):
    """Judge which samples the ranks evaluate in one evaluation.

    `may_drop` is whether the script may drop a sampler's padding: one sample each on
    at most all ranks but one.
    """
    lists = [epoch["indices"] for epoch in epochs]
    size = epochs[0]["size"]
    twice = sum(len(one) for one in lists) - len(set().union(*lists))
    if all(sorted(one) == sorted(lists[0]) for one in lists):
        yield finding("evaluated", line, size=len(lists[0]))
    elif twice and twice not in merged:
        dealt = epochs[0]["dealt"]
        told = [f"loaded at {line}"] if dealt != line else []
        level = "LOOK" if may_drop and twice < len(epochs) else None
        yield finding("twice", dealt, told, level, twice=twice, size=size)


def evaluated_in_training(seen):
    """Find evaluations whose train() mode matters, except on training batches."""
    trained = {epoch["line"] for epoch in seen.readings(0, True)}
    found = [one for one in seen.of("pass") if not one["grad"] and one["at_work"]]
    found = [one for one in found if not trained & set(one["reading"])]
    often = not trained and len(found) > len(seen.of("step")) / 2
    if found and not often:
        first = found[0]
        yield finding("training", first["line"], what=first["at_work"][0])


def evaluated_network(seen):
    """Find ranks that evaluate different weights, or buffers in eval() mode."""
    for training in False, True:
        for each in evaluated_together(seen, training):
            first = each[0]
            if any(one["line"] != first["line"] for one in each):
                break  # ranks evaluate different networks, or one evaluates more
            # each rank has its own part of split layers
            weights = None if seen.of("split") else differing(seen, "weights", each)
            buffers = None if training else differing(seen, "buffers", each)
            if weights:
                yield weights_evaluated(seen, each, weights)
            elif buffers:
                same = all(one["rows"] == first["rows"] for one in each)
                level = "LOOK" if same else None  # perhaps only one rank's counts
                yield finding("buffers", first["line"], level=level, name=buffers)
            if weights or buffers:
                return


def weights_evaluated(seen, passes, name):
    """Return a Finding for passes of an evaluation, one per rank."""
    first = passes[0]
    networks = {rank: one["id"] for rank, one in enumerate(passes)}
    alone, where = seen.done_by_some(networks)
    # on the same samples, perhaps only one rank's result counts
    level = "LOOK" if all(one["rows"] == first["rows"] for one in passes) else None
    line = alone or first["made"] or first["line"]
    told = [*where, f"evaluated at {first['line']}"]
    return finding("evaluated_weights", line, told, level, name=name)


def evaluated_together(seen, training):
    """Yield tuples of passes of the same evaluation, one per rank, in train() or not.

    Between two evaluations, ranks take steps or call collectives. If the ranks have
    different numbers of samples, and so of passes, only the first pass is compared.
    """
    evaluations = []
    for events in seen.events:
        passes = {}
        before = 0
        for event in events:
            before += event["kind"] == "step" or event.get("whole", False)
            counts = event["kind"] == "pass" and not event["grad"]
            if counts and event["training"] == training:
                passes.setdefault(before, []).append(event)
        evaluations.append(passes)
    for before in sorted(set.intersection(*map(set, evaluations))):
        together = [passes[before] for passes in evaluations]
        if len({len(passes) for passes in together}) > 1:
            together = [passes[:1] for passes in together]
        yield from zip(*together, strict=True)


def differing(seen, kind, passes):
    """Return the first name whose weights or buffers differ between ranks, or None."""
    return first_split([one[kind] for one in passes], seen.own_parts())
