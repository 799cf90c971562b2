"""Rules for weights, gradients, learning rates and buffers."""

from collections import defaultdict

from onecurve.rules.findings import finding, of_each_rank
from onecurve.rules.seen import first_split
from onecurve.wording import SHOWN

RATES = "set the same learning rate on every rank in every step"
BY_HAND = "the script itself"
ALIKE = "change weights and optimizer state in the same way on every rank"
PLANNED = "include every layer in the plan, or use the same seed on all ranks"
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
            yield finding("weights", line, details, repair=repair, number=number)
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
    idle = [rank for rank, event in by_rank.items() if not event["steps"]]
    latest = {}
    for rank, event in by_rank.items():
        if rank not in idle:
            latest[rank] = seen.of("step", rank)[event["steps"] - 1]
    rates = [step["rates"] for step in latest.values()]
    line = latest[min(latest)]["line"]
    if idle:
        return line, [f"ranks {idle} took no step"], None
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


def rates_by_world(several, one):
    """Find learning rates that depend on the number of ranks.

    Without epochs, find schedules that don't though each step uses W times the samples.
    """
    pairs = list(zip(several.of("step"), one.of("step"), strict=False))
    for number, (ours, theirs) in enumerate(pairs, start=1):
        if ours["rates"] != theirs["rates"]:
            of_schedule = ours["bases"] == theirs["bases"]
            what = "the schedule" if of_schedule else set_by(several)
            told = f"step {number}: {on_each(several, ours, theirs)}, set by {what}"
            made = several.lines_of("made", schedules=of_schedule)
            if ours["scheduled"] != theirs["scheduled"]:
                made = several.lines_of("schedule")  # stepped more often
            yield finding("rates", (made or [ours["line"]])[-1], [told])
            return
    varies = any(ours["rates"] != pairs[0][0]["rates"] for ours, _ in pairs)
    alike = all(ours["samples"] == theirs["samples"] for ours, theirs in pairs)
    if varies and alike and not several.readings(0, True):
        line = [pairs[0][0]["line"], *several.lines_of("made", schedules=True)][-1]
        by_hand = set_by(several) == BY_HAND
        told = [f"the learning rate depends on the step number, set by {BY_HAND}"]
        facts = {"ranks": len(several.ranks)}
        yield finding("updates", line, told if by_hand else [], **facts)


def first_rates_by_world(several, others):
    """Find initial rates that depend on the number of ranks, if one takes no step."""
    for other in others:
        pairs = zip(several.of("made"), other.of("made"), strict=False)
        for ours, theirs in pairs:
            if ours.get("rates") != theirs.get("rates"):
                told = f"initially: {on_each(several, ours, theirs)}"
                yield finding("rates", ours["line"], [f"{told}, set by the optimizer"])
                return


def on_each(several, ours, theirs):
    """Describe the rates of two events, of several ranks and of one."""
    ours, theirs = [shortened(one["rates"]) for one in (ours, theirs)]
    return f"{ours} on {len(several.ranks)} ranks, {theirs} on 1"


def shortened(rates):
    """Return the rates of an optimizer's first groups as a string."""
    if len(rates) <= SHOWN:
        return str(rates)
    told = ", ".join(f"{rate:.6g}" for rate in rates[:SHOWN])
    return f"[{told}, ...]"


def set_by(seen):
    """Return what sets the learning rates if no scheduler does."""
    rates = [step["rates"] for step in seen.of("step")]
    by_hand = rates[0] != rates[-1] and not seen.of("schedule")
    return BY_HAND if by_hand else "the optimizer"


def length_by_world(several, others):
    """Find schedules too long or short for W ranks, by Seens of W ranks and of 1."""
    ours = epoch_of_schedule(several)
    known = [epoch_of_schedule(one) for one in others]
    theirs = next((one for one in known if one), None)
    if not (ours and theirs) or 0.8 < ours[0] / ours[1] * theirs[1] / theirs[0] < 1.25:
        return
    taken, length, line = ours
    alone, of_one, _ = theirs
    details = [f"{len(several.ranks)} ranks: {taken:.0f} of {length} steps per epoch"]
    details.append(f"1 process: {alone:.0f} of {of_one}")
    yield finding("length", line, details)


def epoch_of_schedule(seen):
    """Return (scheduler steps per epoch, schedule length, its line), or None."""
    made = [event for event in seen.of("made") if event["length"]]
    epochs = seen.first_epochs()
    calls = len(seen.of("schedule"))
    steps = len(seen.of("step"))
    # after one step, we don't know how often the scheduler is stepped
    alone = steps == 1 and seen.of("cannot_tell")
    if alone or not (made and epochs and calls and steps):
        return None
    taken = len(epochs[0]["sizes"]) / seen.batches_of_step()
    often = taken * round(calls / steps) if calls >= steps else 1
    longest = max(made, key=lambda event: event["length"])
    return often, longest["length"], longest["line"]


def saved_without(seen):
    """Find a checkpoint that lacks state needed to resume."""
    for rank in seen.ranks:
        for event in seen.of("saved", rank)[-1:]:
            yield finding("saved", event["line"], what=" and ".join(event["lacks"]))
            return


def modes(seen):
    """Find ranks that don't all train in train(), or only do so at first."""
    table = [modes_of(seen, rank) for rank in seen.ranks]
    for each in zip(*table, strict=False):
        names = ["train()" if training else "eval()" for _, _, training, _ in each]
        if len(set(names)) > 1:
            _, line, _, called = each[names.index("train()")]
            yield finding("modes", called or line, of_each_rank(names))
            return
    trains = set()
    for step, line, training, called in table[0]:
        if not training and line in trains:
            yield finding("eval", called or line, [f"trained at {line}"], number=step)
            return
        trains |= {line} if training else set()


def modes_of(seen, rank):
    """Return [(step, line, whether in train(), line that set it)] per backward."""
    found = []
    step = 1
    training = None
    called = None
    for event in seen.events[rank]:
        if event["kind"] == "mode":
            called = event["line"]
        elif event["kind"] == "pass":
            training = event["training"] if event["grad"] else None
        elif event["kind"] == "backward" and training is not None:
            found.append((step, event["line"], training, called))
            training = None
        step += event["kind"] == "step"
    return found


def schedules_differ(seen):
    """Find schedulers that ranks don't step equally often or with equal metrics."""
    calls = seen.on_all("schedule")
    counts = [len(each) for each in calls]
    if len(set(counts)) > 1 and not seen.of("join") and not rates_move_alike(seen):
        most = calls[counts.index(max(counts))]
        told = of_each_rank(f"{count} times" for count in counts)
        level = "LOOK" if is_broadcast(seen, counts.index(max(counts))) else None
        yield finding("schedule", most[min(counts)]["line"], told, level)
        return
    for each in seen.together("schedule"):
        numbers = [one["metric"] for one in each]
        if len(set(numbers)) > 1:
            yield finding("schedule", each[0]["line"], of_each_rank(numbers))
            return


def rates_move_alike(seen):
    """Return whether rates change equally on all ranks: one may broadcast them."""
    ranks = [[step["rates"] for step in each] for each in seen.on_all("step")]
    return all(each == ranks[0] for each in ranks) and ranks[0][0] != ranks[0][-1]


def is_broadcast(seen, rank):
    """Return whether a rank broadcasts a number right after a scheduler's step."""
    waits = False
    for event in seen.events[rank]:
        if event["kind"] == "schedule":
            waits = True
        elif event["kind"] == "collective_call" and waits:
            if event["numbers"] != 1 or event["name"] != "broadcast":
                return False
            waits = False
    return True


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
