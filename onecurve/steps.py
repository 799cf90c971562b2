"""Rules: weights, gradients, learning rates and buffers."""

from onecurve.findings import finding, of_each_rank, some
from onecurve.seen import first_split

RATES = "set the same learning rate on every rank, in each step"
UNCHANGED = "change no weights between the wrapper and the first step"


def weights_differ(seen):
    """Ranks that begin a batch, or end, with other weights than another rank."""
    begun = None
    own = seen.own_parts()
    for by_rank in seen.batches_begun():
        number = max(event["steps"] for event in by_rank.values())
        name = first_split([event["weights"] for event in by_rank.values()], own)
        if name and number:  # before the first step, others may come yet
            details = [f"the first: {name}"]
            line, told, repair = why_weights_differ(seen, by_rank, begun)
            details += told
            yield finding("weights", line, details, repair=repair, number=number)
            return
        begun = by_rank if name else begun


def why_weights_differ(seen, by_rank, begun):
    """Return (line, details, repair or None) for weights that differ.

    `by_rank` has the first event of each rank that says so after a step, `begun` those
    before the first step, or None.
    """
    if begun:
        told = ["they differ before the first step"]
        for wrapper in seen.of("ddp"):
            return wrapper["line"], [*told, "DDP has made them equal here"], UNCHANGED
        return begun[0]["made"], told, None
    idle = [rank for rank, event in by_rank.items() if not event["steps"]]
    latest = {}
    for rank, event in by_rank.items():
        if rank not in idle:
            latest[rank] = seen.of("step", rank)[event["steps"] - 1]
    rates = [step["rates"] for step in latest.values()]
    line = latest[min(latest)]["line"]
    if idle:
        return line, [f"ranks {idle} have taken no step"], None
    if all(one == rates[0] for one in rates):
        return line, [], None
    told = [f"the learning rates differ: {rates}"]
    alone, where = seen.done_by_some({rank: one["id"] for rank, one in latest.items()})
    return alone or line, told + where, RATES


def parts_of_models(seen):
    """FSDP of weights that differ between the ranks: it makes them no single model."""
    for each in seen.together("sharded"):
        name = first_split([event["weights"] for event in each])
        if name:
            yield finding("parts", each[0]["line"], name=name.partition(",")[0])
            return


def parts_saved(seen):
    """Parts of sharded weights that some ranks save, and others do not."""
    saved = [events for events in seen.on_all("saved_part") if events]
    if 0 < len(saved) < len(seen.ranks):
        yield finding("parts_saved", saved[0][0]["line"])


def rates_by_world(several, one):
    """Learning rates that depend on the number of ranks, by the Seens of two runs."""
    pairs = zip(several.of("step"), one.of("step"), strict=False)
    for number, (ours, theirs) in enumerate(pairs, start=1):
        if ours["rates"] != theirs["rates"]:
            of_schedule = ours["bases"] == theirs["bases"]
            what = "the schedule" if of_schedule else "the optimizer"
            ranks = f"{ours['rates']} on {len(several.ranks)} ranks"
            told = f"step {number}: {ranks}, {theirs['rates']} on 1, by {what}"
            made = several.lines_of("made", schedules=of_schedule)
            if several.scheduled(number) != one.scheduled(number):
                made = several.lines_of("schedule")  # more often for a step
            yield finding("rates", (made or [ours["line"]])[-1], [told])
            return


def no_gradients(seen):
    """An optimizer of which no parameter ever has a gradient."""
    steps = seen.of("before_step")
    if steps and not any(step["gradients"] for step in steps):
        details = ["it holds tensors that the model does not use any more"]
        made = seen.lines_of("made", schedules=False)
        yield finding("no_gradient", made[-1] if made else None, details)


def gradients_zero(seen):
    """An optimizer whose gradients are all 0, in each step and on each rank."""
    given = [step for each in seen.on_all("before_step") for step in each]
    if given and all(step["gradients"] and step["zero"] for step in given):
        yield finding("zero", given[0]["line"])


def left_out(seen):
    """Parameters of a model of which optimizers have others."""
    made = seen.lines_of("made", schedules=False)
    for event in seen.of("left"):
        names = event["names"]
        if 0 < len(names) < event["count"]:
            facts = {"left": len(names), "count": event["count"]}
            line = made[-1] if made else None
            yield finding("left", line, [some(names)], **facts)
            return


def modes(seen):
    """Ranks that do not all train in train(), or do so at first only."""
    table = [modes_of(seen, rank) for rank in seen.ranks]
    for each in zip(*table, strict=False):
        line = each[0][1]
        names = ["train()" if training else "eval()" for _, _, training in each]
        if len(set(names)) > 1:
            yield finding("modes", line, of_each_rank(names))
            return
    trains = set()
    for step, line, training in table[0]:
        if not training and line in trains:
            yield finding("eval", line, number=step)
            return
        trains |= {line} if training else set()


def modes_of(seen, rank):
    """Return [(number of the step, line, whether in train())] of backward passes."""
    found = []
    step = 1
    training = None
    for event in seen.events[rank]:
        if event["kind"] == "pass":
            training = event["training"] if event["grad"] else None
        elif event["kind"] == "backward" and training is not None:
            found.append((step, event["line"], training))
            training = None
        step += event["kind"] == "step"
    return found


def other_type(seen):
    """A model that was moved to another type after DDP had wrapped it."""
    for event in seen.of("other_type")[:1]:
        yield finding("other_type", event["line"])


def schedules_differ(seen):
    """Schedulers that are stepped on some ranks only, or by different numbers."""
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
    """Return whether rates change, and alike: one rank may tell the others."""
    ranks = [[step["rates"] for step in each] for each in seen.on_all("step")]
    return all(each == ranks[0] for each in ranks) and ranks[0][0] != ranks[0][-1]


def is_broadcast(seen, rank):
    """Return whether a rank, right after a scheduler's step, broadcasts a number."""
    waits = False
    for event in seen.events[rank]:
        if event["kind"] == "schedule":
            waits = True
        elif event["kind"] == "collective_call" and waits:
            if event["numbers"] != 1 or event["name"] != "broadcast":
                return False
            waits = False
    return True


def exchanges(seen):
    """Gradients that DDP or FSDP exchanges more than once for a step."""
    modules = len(seen.of("ddp")) or len(seen.of("shard"))
    if len(seen.of("ddp")) > 1:
        return  # each may be of another optimizer
    counts = []
    line = None
    count = 0
    for event in seen.events[0]:
        if event["kind"] == "backward":
            line = line or event["line"]
        elif event["kind"] == "collective_call":
            count += event["name"] == "backward" or "reduce_scatter" in event["name"]
        elif event["kind"] == "step":
            counts.append(count)
            count = 0
    often = [count for count in counts if modules and count > modules]
    if len(often) > len(counts) / 2:
        yield finding("exchanged", line, times=often[0] // modules)


def clipped_alone(seen):
    """Clipping by a norm that is not the same on all ranks."""
    for clips in seen.together("clip"):
        norms = [clip["norm"] for clip in clips]
        if max(norms) - min(norms) > 1e-4 * max(norms):
            yield finding("clip", clips[0]["line"], of_each_rank(norms))
            return


def evaluated_network(seen):
    """Ranks that evaluate networks with different weights, or buffers: statistics."""
    passes = []
    for each in seen.on_all("pass"):
        passes.append([one for one in each if not one["training"] and not one["grad"]])
    for each in zip(*passes, strict=False):
        first = each[0]
        if any(one["line"] != first["line"] for one in each):
            return  # the ranks evaluate other networks, or one rank more of them
        for kind in "weights", "buffers":
            if kind == "weights" and seen.of("split"):
                continue  # each rank has its own part of the model
            name = first_split([one[kind] for one in each], seen.own_parts())
            if name:
                # of the same samples, what one rank computes may be all that counts
                alike = all(one["rows"] == first["rows"] for one in each)
                level = "LOOK" if alike and kind == "weights" else None
                if kind == "buffers":
                    yield finding(kind, first["line"], name=name)
                else:
                    networks = {rank: one["id"] for rank, one in enumerate(each)}
                    alone, where = seen.done_by_some(networks)
                    line = alone or first["made"] or first["line"]
                    told = [*where, f"evaluated at {first['line']}"]
                    row = "evaluated_weights"
                    yield finding(row, line, told, level, name=name)
                return
