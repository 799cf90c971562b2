"""Rules for weights and buffers."""

from collections import defaultdict

from onecurve.rules.findings import finding, of_each_rank
from onecurve.rules.schedules import BY_HAND
from onecurve.rules.seen import first_split

RATES = "set the same learning rate on every rank in every step"
ALIKE = "change weights and optimizer state in the same way on every rank"
PLANNED = "include every layer in the plan, or use the same seed on all ranks"
TOGETHER = "take or skip a step on all ranks: all_reduce what decides, with MIN"
UNCHANGED = "don't change weights between wrapping and the first step"


def weights_differ(seen):
    """Find ranks that begin a batch, or end, with different weights."""
    begun = None
    own = seen.own_parts()
    if seen.agree_in_each_step():
        return  # a rank may begin its loader again while others go on
    for by_rank in seen.batches_begun():
        number = max(event["steps"] for event in by_rank.values())
        name = first_split([event["weights"] for event in by_rank.values()], own)
        if name and number:  # before the first step, weights may still change
            details = [f"first difference: {name}"]
            line, told, repair = why_weights_differ(seen, by_rank, begun)
            details += told
            by_hand = repair == RATES and not seen.of("schedule")
            options = {"repair": repair, "cause": "rate" if by_hand else None}
            yield finding("weights", line, details, **options, number=number)
            return
        begun = by_rank if name else begun


def why_weights_differ(seen, by_rank, begun):
    """Return (line, details, repair or None) for weights that differ.

    `by_rank` are the first such events after a step, `begun` those before it, or None.
    """
    if begun:
        told = ["they already differ before the first step"]
        wrappers = seen.lines_of("ddp")
        plans = seen.lines_of("split")
        if wrappers:
            return wrappers[0], [*told, "DDP made them equal here"], UNCHANGED
        if plans:
            return plans[-1], told, PLANNED
        return begun[0]["made"], told, None
    counts = {rank: event["steps"] for rank, event in by_rank.items()}
    latest = {}
    for rank, count in counts.items():
        if count:
            latest[rank] = seen.of("step", rank)[count - 1]
    rates = [step["rates"] for step in latest.values()]
    line = latest[min(latest)]["line"]
    if len(set(counts.values())) > 1:
        told = [f"rank {rank} took {count} steps" for rank, count in counts.items()]
        return line, told, TOGETHER
    if all(one == rates[0] for one in rates):
        for events in by_rank, latest:  # networks, then optimizers
            ids = {rank: event["id"] for rank, event in events.items()}
            alone, where = seen.done_by_some(ids)
            if alone:
                return alone, where, ALIKE
        return line, [], None
    told = [f"learning rates differ: {rates}"]
    if not seen.of("schedule"):
        told[0] += f", set by {BY_HAND}"
    alone, where = seen.done_by_some({rank: one["id"] for rank, one in latest.items()})
    return alone or line, told + where, RATES


def parts_of_models(seen):
    """Find FSDP models whose weights differed by rank before they were sharded."""
    for each in seen.together("sharded"):
        name = first_split([event["weights"] for event in each])
        if name:
            yield finding("parts", each[0]["line"], name=name.partition(",")[0])
            return


def parts_saved(seen):
    """Find shards of weights that only some ranks save."""
    saved = [events for events in seen.on_all("saved_part") if events]
    if 0 < len(saved) < len(seen.ranks):
        yield finding("parts_saved", saved[0][0]["line"])


def saved_without(seen):
    """Find a checkpoint that lacks state needed to resume."""
    for rank in seen.ranks:
        for event in seen.of("saved", rank)[-1:]:
            yield finding("saved", event["line"], what=" and ".join(event["lacks"]))
            return


def modes(seen):
    """Find ranks that don't all train in train()."""
    table = [modes_of(seen, rank) for rank in seen.ranks]
    for each in zip(*table, strict=False):
        names = ["train()" if training else "eval()" for _, training, _ in each]
        if len(set(names)) > 1:
            line, _, called = each[names.index("train()")]
            yield finding("modes", called or line, of_each_rank(names))
            return


def modes_of(seen, rank):
    """Return [(line, whether in train(), line that set it)] per backward."""
    found = []
    training = None
    called = None
    for event in seen.events[rank]:
        if event["kind"] == "mode":
            called = event["line"]
        elif event["kind"] == "pass":
            training = event["training"] if event["grad"] else None
        elif event["kind"] == "backward" and training is not None:
            found.append((event["line"], training, called))
            training = None
    return found


def statistics(seen):
    """Find unequal buffers: initial ones, or any of modules without parameters."""
    if seen.of("split"):
        return
    for each in looked_at_together(seen):
        name = first_split([one["buffers"] for one in each])
        if name:
            first = each[0]
            told = [f"used at {first['line']}"]
            yield finding("statistics", first["made"] or first["line"], told, name=name)
            return


def looked_at_together(seen):
    """Yield tuples of events in which ranks use a module's buffers in the same step.

    If one uses them more often, as in a longer game, yield only the first.
    """
    tables = []
    for rank in seen.ranks:
        table = defaultdict(list)
        for event in seen.of("statistics", rank):
            if event["looked_at"]:
                table[event["made"], event["steps"]].append(event)
        tables.append(table)
    for place in tables[0]:
        lists = [table[place] for table in tables if place in table]
        if len(lists) == len(tables):
            if len({len(one) for one in lists}) > 1:
                lists = [one[:1] for one in lists]
            yield from zip(*lists, strict=True)
