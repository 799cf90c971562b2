"""Rules: which samples and which weights the ranks evaluate."""

from onecurve.findings import finding
from onecurve.seen import first_split


def evaluated_twice(seen):
    """Evaluations that count samples twice, or that every rank makes whole."""
    evaluations = {}
    for rank in seen.ranks:
        for epoch in seen.readings(rank, False):
            if epoch["indices"] and epoch["identity"]:
                place = epoch["line"], epoch["number"], epoch["identity"]
                evaluations.setdefault(place, []).append(epoch)
    told = set()
    calls = seen.of("collective_call")
    by = {call["by"] for call in calls}
    if "gather_for_metrics" in by:  # accelerate's: it drops those that came twice
        return
    # samples that are gathered may be counted once, or cut
    gathers = any("gather" in call["name"] for call in calls)
    merged = {event["twice"] for event in seen.of("gathered")}  # by their numbers
    for (line, _, _), epochs in evaluations.items():
        if len(epochs) > 1 and line not in told:
            told.add(line)
            yield from judge_evaluation(line, epochs, gathers, merged)


def judge_evaluation(line, epochs, may_drop, merged):
    """Judge which samples the ranks evaluate in one evaluation.

    `may_drop` is whether the script may leave out those that a sampler adds, at most
    one for each rank but one.
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
    """A network that is trained, and evaluated in train(), where that matters.

    Not where batches to train on are read: such a pass is a part of the training.
    """
    trained = {epoch["line"] for epoch in seen.readings(0, True)}
    found = [one for one in seen.of("pass") if not one["grad"] and one["at_work"]]
    found = [one for one in found if not trained & set(one["reading"])]
    often = not trained and len(found) > len(seen.of("step")) / 2
    if found and not often:
        first = found[0]
        yield finding("training", first["line"], what=first["at_work"][0])


def evaluated_network(seen):
    """Ranks that evaluate networks with different weights, or buffers: statistics.

    In train() a rank has statistics of its own, and they are not used.
    """
    for training in False, True:
        for each in evaluated_together(seen, training):
            first = each[0]
            if any(one["line"] != first["line"] for one in each):
                break  # the ranks evaluate other networks, or one rank more of them
            # of layers that are split, each rank has its own part
            weights = None if seen.of("split") else differing(seen, "weights", each)
            buffers = None if training else differing(seen, "buffers", each)
            if weights:
                yield weights_evaluated(seen, each, weights)
            elif buffers:
                same = all(one["rows"] == first["rows"] for one in each)
                level = "LOOK" if same else None  # one rank's may be all that counts
                yield finding("buffers", first["line"], level=level, name=buffers)
            if weights or buffers:
                return


def weights_evaluated(seen, passes, name):
    """Return a Finding of passes of an evaluation, one of each rank."""
    first = passes[0]
    networks = {rank: one["id"] for rank, one in enumerate(passes)}
    alone, where = seen.done_by_some(networks)
    # of the same samples, what one rank computes may be all that counts
    level = "LOOK" if all(one["rows"] == first["rows"] for one in passes) else None
    line = alone or first["made"] or first["line"]
    told = [*where, f"evaluated at {first['line']}"]
    return finding("evaluated_weights", line, told, level, name=name)


def evaluated_together(seen, training):
    """Yield tuples: passes of the same evaluation, one of each rank, in train() or not.

    Between two evaluations ranks take steps or call collectives. A rank may have more
    samples than another in one, and so more passes: of those, the first is looked at.
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
    """Return the first name of a network whose weights, or buffers, differ, or None."""
    return first_split([one[kind] for one in passes], seen.own_parts())
