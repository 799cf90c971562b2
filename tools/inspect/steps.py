"""Mistakes in what the ranks have and do at each step: weights, gradients, rates."""

from tools.inspect.seen import Finding, first_split


def weights_differ(seen):
    """The weights, or what is added to them, are not equal on all ranks."""
    for number, steps in enumerate(seen.together("step"), start=1):
        name = first_split([step["weights"] for step in steps])
        if name:
            before = list(seen.together("before_step"))[number - 1]
            yield from why_weights_differ(seen, number, name, steps, before)
            return


def why_weights_differ(seen, number, name, steps, before):
    """Say what is known of a parameter that differs after a step."""
    what = f"after step {number} the weights differ between the ranks"
    details = [f"the first: {name}"]
    see = "04_ddp: wrap the model, and call the wrapper"
    differ = first_split([step["gradients"] for step in before])
    inside = [event for event in seen.of("pass") if event["inside"] and event["grad"]]
    if not differ:
        details.append("its gradient is the same: the ranks began with other weights,")
        details.append("or step with other learning rates or other state")
    elif not seen.of("ddp"):
        details.append("its gradient differs, and no module is wrapped in DDP")
    elif name not in before[0]["wrapped"]:
        details.append("its gradient differs: DDP wraps another module, not this one")
    elif inside:
        details.append(f"the model is called past DDP at {inside[0]['line']}")
    else:
        details.append("its gradient differs, though DDP wraps the module")
    yield Finding("ERROR", what, steps[0]["line"], details, see)


def gradients_differ(seen):
    """A gradient that is equal nowhere else, with weights that happen to be equal."""
    if any(first_split([s["weights"] for s in each]) for each in seen.together("step")):
        return
    for number, steps in enumerate(seen.together("before_step"), start=1):
        name = first_split([step["gradients"] for step in steps])
        if name:
            what = f"before step {number} a gradient differs between the ranks: {name}"
            yield Finding("LOOK", what, steps[0]["line"])
            return


def no_gradients(seen):
    """An optimizer of which no parameter ever has a gradient."""
    steps = seen.of("before_step")
    if steps and all(step["without"] for step in steps):
        what = "no parameter of the optimizer has a gradient"
        details = ["it holds tensors that the model does not use any more"]
        see = "exercise 23: wrap or shard the model, then create the optimizer"
        yield Finding("ERROR", what, steps[0]["line"], details, see)


def rates_differ(seen):
    """The learning rates are not equal on all ranks."""
    for number, steps in enumerate(seen.together("step"), start=1):
        rates = [step["rates"] for step in steps]
        if any(one != rates[0] for one in rates):
            details = [f"rank {rank}: {one}" for rank, one in enumerate(rates)]
            what = f"in step {number} the ranks have different learning rates"
            see = "step the scheduler on every rank, by the same numbers"
            yield Finding("ERROR", what, steps[0]["line"], details, see)
            return


def schedules_differ(seen):
    """Schedulers that are stepped on some ranks only, or by different numbers."""
    calls = seen.on_all("schedule")
    counts = [len(each) for each in calls]
    if len(set(counts)) > 1:
        details = [f"rank {rank}: {count} times" for rank, count in enumerate(counts)]
        line = calls[counts.index(max(counts))][-1]["line"]
        what = "the ranks do not all step the scheduler"
        yield Finding("ERROR", what, line, details, "step it on every rank")
        return
    for each in seen.together("schedule"):
        metrics = [one["metric"] for one in each]
        if any(one != metrics[0] for one in metrics):
            details = [f"rank {rank}: {one:.6f}" for rank, one in enumerate(metrics)]
            what = "the scheduler is given a different number on each rank"
            see = "exercise 30: all_reduce it first"
            yield Finding("ERROR", what, each[0]["line"], details, see)
            return


def exchanges(seen):
    """Gradients that are exchanged more than once for a step."""
    counts = [event["exchanges"] for event in seen.of("before_step")]
    often = [count for count in counts if count > 1]
    if len(often) > len(counts) / 2:
        what = f"gradients are exchanged {often[0]} times for a step"
        lines = [event["line"] for event in seen.of("backward")]
        see = "model.no_sync() for all batches of a step but the last"
        yield Finding("SLOW", what, lines[0] if lines else None, [], see)


def sharded_exchanges(seen):
    """Gradients of FSDP that are exchanged more than once for a step."""
    modules = len(seen.of("shard"))
    count = 0
    line = None
    for event in seen.events[0]:
        exchanged = event["kind"] in ("collective", "grouped")
        if exchanged and "reduce_scatter" in event["name"]:
            count += 1
        if event["kind"] == "backward":
            line = line or event["line"]
        if event["kind"] == "step":
            if modules and count > modules:
                times = f"{count} reduce-scatters for {modules} sharded modules"
                what = "gradients are exchanged several times for a step"
                see = "model.set_requires_gradient_sync(last): the last batch's only"
                yield Finding("SLOW", what, line, [times], see)
                return
            count = 0


def clipped_alone(seen):
    """Clipping by a norm that is not the same on all ranks."""
    for clips in seen.together("clip"):
        norms = [clip["norm"] for clip in clips]
        if max(norms) - min(norms) > 1e-4 * max(norms):
            details = [
                f"rank {rank}: norm {norm:.6f}" for rank, norm in enumerate(norms)
            ]
            what = "each rank clips by a norm of its own"
            see = "clip after the last backward(), when the gradients are averaged"
            yield Finding("ERROR", what, clips[0]["line"], details, see)
            return


def evaluated_network(seen):
    """Ranks that evaluate networks which are not equal."""
    passes = [
        [one for one in each if not one["grad"] and not one["training"]]
        for each in seen.on_all("pass")
    ]
    for each in zip(*passes, strict=False):
        name = first_split([one["buffers"] for one in each])
        if name:
            what = f"the ranks evaluate with different buffers: {name}"
            details = [
                "such as BatchNorm's statistics: each rank has those of its data"
            ]
            see = "broadcast the buffers from rank 0 before the evaluation"
            yield Finding("ERROR", what, each[0]["line"], details, see)
            return
