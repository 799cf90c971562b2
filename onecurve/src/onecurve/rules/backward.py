"""Rules: what backward passes compute and exchange, and when ranks take steps."""

import math

from onecurve.rules.findings import LAST, PARTS, finding, of_each_rank

TOO_LATE = "zero_grad() is called between backward() and step()"
EARLY = "call zero_grad() before backward() or after step()"
APART = 1e-2  # relative: factors of shards may be in bfloat16


def no_gradients(seen):
    """Find an optimizer whose parameters never have a gradient."""
    steps = seen.of("before_step")
    if steps and not any(step["gradients"] for step in steps):
        details = ["it holds tensors that the model no longer uses"]
        made = seen.lines_of("made", schedules=False) or [None]
        late = zeroed_late(seen, "no_gradient")
        yield late or finding("no_gradient", made[-1], details)


def gradients_zero(seen):
    """Find an optimizer whose gradients are all 0, in each step and on each rank."""
    given = [step for each in seen.on_all("before_step") for step in each]
    if given and all(step["gradients"] and step["zero"] for step in given):
        yield zeroed_late(seen, "zero") or finding("zero", given[0]["line"])


def zeroed_late(seen, name):
    """Return a Finding if zero_grad() runs between backward() and the first step."""
    computed = False
    late = None
    for event in seen.events[0]:
        if event["kind"] == "backward":
            computed = True
            late = None
        elif event["kind"] == "zero_grad" and computed:
            late = event["line"]
        elif event["kind"] == "before_step":
            break
    return finding(name, late, [TOO_LATE], repair=EARLY) if late else None


def not_finite(seen):
    """Find a loss or weights that are nan or infinite."""
    for rank in seen.ranks:
        for number, event in enumerate(seen.of("backward", rank), start=1):
            if event["loss"] is not None and not math.isfinite(event["loss"]):
                told = [f"rank {rank}, backward pass {number}: {event['loss']}"]
                yield finding("finite", event["line"], told, what="the loss")
                return
        for event in seen.of("weights", rank):
            if not event["finite"]:
                told = [f"rank {rank}, after step {event['steps']}"]
                yield finding("finite", event["made"], told, what="a weight")
                return


def exchanges(seen):
    """Find gradients that DDP or FSDP exchanges more than once per step."""
    modules = len(seen.of("ddp")) or len(seen.of("shard"))
    if len(seen.of("ddp")) > 1:
        return  # each may have its own optimizer
    counts = [sum(exchanged) for _, exchanged in seen.exchanges()]
    often = [count for count in counts if modules and count > modules]
    if len(often) > len(counts) / 2:
        line = seen.of("backward")[0]["line"]
        yield finding("exchanged", line, times=often[0] // modules)


def last_not_exchanged(seen):
    """Find FSDP steps that exchange gradients, but not in the last backward pass."""
    for line, counts in seen.exchanges() if seen.of("shard") else []:
        if any(counts) and not counts[-1]:
            told = f"the last of {len(counts)} backward passes is not exchanged"
            yield finding("exchange", line, [told], repair=LAST, cause="sync")
            return


def clipped_alone(seen):
    """Find clipping by a norm that differs between ranks."""
    for clips in seen.together("clip"):
        norms = [clip["norm"] for clip in clips]
        if max(norms) - min(norms) > 1e-4 * max(norms):
            yield finding("clip", clips[0]["line"], of_each_rank(norms))
            return


def parts_scaled(seen):
    """Find shards of gradients that each rank scales by its own factor."""
    for each in seen.together("parts_scaled"):
        factors = [one["factor"] for one in each]
        if None not in factors and max(factors) - min(factors) > APART * max(factors):
            told = of_each_rank(f"shards scaled by {factor:.4g}" for factor in factors)
            line = each[0]["line"]
            yield finding("clip", line, told, repair=PARTS, cause="norm")
            return


def batches_skipped(seen):
    """Find a step in which ranks are at different batches of an epoch."""
    begun = [[one["batches"] for one in each] for each in seen.on_all("begun")]
    if seen.of("join") or any(lengths != begun[0] for lengths in begun):
        return  # ranks may cycle through loaders of their own lengths
    tables = [batch_in_each_step(seen.events[rank]) for rank in seen.ranks]
    for number, each in enumerate(zip(*tables, strict=False), start=1):
        epochs = {(line, epoch) for line, epoch, _ in each}
        batches = [batch for _, _, batch in each]
        if len(epochs) == 1 and len(set(batches)) > 1:
            line = seen.of("step")[number - 1]["line"]
            yield finding("skipped", line, number=number, batches=batches)
            return


def batch_in_each_step(events):
    """Return a rank's latest (loader's line, epoch, batch) in each of its steps."""
    found = []
    latest = None, 0, 0
    for event in events:
        if event["kind"] == "weights" and len(event["place"]) > 2:
            latest = tuple(event["place"][1:])
        elif event["kind"] == "step":
            found.append(latest)
    return found
