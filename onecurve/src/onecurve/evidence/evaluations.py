"""Which samples and which network the ranks evaluate, and when."""

from onecurve.evidence.seen import Seen, first_split


def since_wrapped(seen):
    """Return a Seen without what ranks do before DDP or FSDP makes weights equal.

    A pass there initializes a network or asks for a shape. Without a wrapper, ranks
    evaluate after the first step. If they take none, all passes count.
    """
    found = []
    for events in seen.events:
        kinds = [event["kind"] for event in events]
        first = kinds.index("step") if "step" in kinds else 0
        wrapped = [n for n in range(first) if kinds[n] in ("ddp", "shard")]
        found.append(events[wrapped[-1] if wrapped else first :])
    return Seen(found)


def read_together(seen):
    """Yield (line, epochs, one per rank) for each loader's first evaluation."""
    seen = since_wrapped(seen)
    evaluations = {}
    for rank in seen.ranks:
        for epoch in seen.readings(rank, False):
            if epoch["indices"] and epoch["identity"]:
                place = epoch["line"], epoch["number"]
                evaluations.setdefault(place, []).append(epoch)
    if "gather_for_metrics" in {call["by"] for call in seen.of("collective_call")}:
        return  # accelerate's, which drops duplicates
    told = set()
    for (line, _), epochs in evaluations.items():
        if len(epochs) > 1 and line not in told:
            told.add(line)
            yield line, epochs


def are_whole(epochs):
    """Return whether every rank evaluates the same samples."""
    lists = [(one["identity"], sorted(one["indices"])) for one in epochs]
    return all(one == lists[0] for one in lists)


def first_unlike(seen):
    """Return ("weights" or "buffers", name, passes) if networks differ by rank.

    Buffers count in eval() mode. `passes` are the ranks' first such passes. Without
    any, return (None, None, []).
    """
    own = seen.own_parts()
    for training in False, True:
        for each in evaluated_together(seen, training):
            if any(one["line"] != each[0]["line"] for one in each):
                break  # ranks evaluate different networks, or one evaluates more
            kinds = [] if seen.of("split") else ["weights"]  # each rank has its part
            for kind in kinds if training else [*kinds, "buffers"]:
                name = first_split([one[kind] for one in each], own)
                if name:
                    return kind, name, each
    return None, None, []


def level_of(passes):
    """Return LOOK if ranks evaluate the same samples: one rank's result may count."""
    same = all(one["rows"] == passes[0]["rows"] for one in passes)
    return "LOOK" if same else None


def evaluated_together(seen, training):
    """Yield tuples of passes of the same evaluation, one per rank, in train() or not.

    Between two evaluations, ranks take steps or call collectives. A pass before any
    step, without a loader, only asks for a shape.
    """
    evaluations = []  # ranks with different numbers of samples have fewer passes
    for events in since_wrapped(seen).events:
        passes = {}
        before = steps = 0
        for event in events:
            steps += event["kind"] == "step"
            before += event["kind"] == "step" or event.get("whole", False)
            counts = event["kind"] == "pass" and not event["grad"]
            counts = counts and (steps or event["reading"])
            if counts and event["training"] == training:
                passes.setdefault(before, []).append(event)
        evaluations.append(passes)
    for place in evaluations[0]:
        lists = [table[place] for table in evaluations if place in table]
        if len(lists) == len(evaluations):  # if counts differ, only the first
            most = None if len({len(one) for one in lists}) == 1 else 1
            yield from zip(*(one[:most] for one in lists), strict=True)
