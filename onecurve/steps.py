"""Rules: weights, gradients, learning rates and buffers."""

from onecurve.findings import finding, of_each_rank
from onecurve.seen import first_split

RATES = "set the same learning rate on every rank, in each step"


def weights_differ(seen):
    """Ranks that begin a batch, or end, with other weights than another rank."""
    for by_rank in seen.batches_begun():
        number = max(event["steps"] for event in by_rank.values())
        name = first_split([event["weights"] for event in by_rank.values()])
        if name and number:  # before the first step, others may come yet
            before = latest(seen, "before_step", by_rank)
            after = latest(seen, "step", by_rank)
            details = [f"the first: {name}", why_weights_differ(seen, before, after)]
            rates = [step["rates"] for step in after]
            repair = RATES if any(one != rates[0] for one in rates) else None
            line = after[0]["line"]
            yield finding("weights", line, details, repair=repair, number=number)
            return


def latest(seen, kind, by_rank):
    """Return an event of each rank, of the step before it came to {rank: event}."""
    found = []
    for rank, event in by_rank.items():
        found.append(seen.of(kind, rank)[event["steps"] - 1])
    return found


def why_weights_differ(seen, before, after):
    """Say what is known of a step after which the weights differ."""
    rates = [step["rates"] for step in after]
    if any(one != rates[0] for one in rates):
        return f"the learning rates differ: {rates}"
    if not first_split([step["gradients"] for step in before]):
        return "its gradient is the same: other weights or another state before it"
    if not seen.of("ddp"):
        return "its gradient differs, and no module is wrapped in DDP"
    inside = [one for one in seen.of("pass") if one["inside"] and one["grad"]]
    if inside:
        return f"the model is called past DDP at {inside[0]['line']}"
    return "its gradient differs: DDP wraps another module, or did not exchange it"


def no_gradients(seen):
    """An optimizer of which no parameter ever has a gradient."""
    steps = seen.of("before_step")
    if steps and not any(step["gradients"] for step in steps):
        details = ["it holds tensors that the model does not use any more"]
        yield finding("no_gradient", steps[0]["line"], details)


def schedules_differ(seen):
    """Schedulers that are stepped on some ranks only, or by different numbers."""
    calls = seen.on_all("schedule")
    counts = [len(each) for each in calls]
    if len(set(counts)) > 1 and not seen.of("join"):
        most = calls[counts.index(max(counts))]
        told = of_each_rank(f"{count} times" for count in counts)
        yield finding("schedule", most[0]["line"], told)
        return
    for each in seen.together("schedule"):
        numbers = [one["metric"] for one in each]
        if len(set(numbers)) > 1:
            yield finding("schedule", each[0]["line"], of_each_rank(numbers))
            return


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
    """Ranks that evaluate networks with different buffers, BatchNorm's statistics."""
    passes = []
    for each in seen.on_all("pass"):
        passes.append([one for one in each if not one["training"]])
    for each in zip(*passes, strict=False):
        name = first_split([one["buffers"] for one in each])
        if name:
            yield finding("buffers", each[0]["line"], name=name)
            return
