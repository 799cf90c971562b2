"""Check that gradients were exchanged: compare the optimizer's with the ranks' mean.

Each optimizer must get the mean of the ranks' sums since its last step. No batches are
merged.
"""

import torch

from onecurve.compare.rounding import FACTOR, nearly, relation
from onecurve.rules import finding
from onecurve.rules.exchange import LAST
from onecurve.wording import some

PARALLEL = 1e-6  # of 1 - cosine
REPLACED = "equal on all ranks, but changed between backward() and the exchange"
CHANGED = "backward() averaged them, then each rank changed its own here"
SAME_CHANGE = "change gradients alike on all ranks: share the seed, norm or scale"
IGNORED = "all_reduce the gradients of ignored parameters, or don't ignore them"
THAWED = "add, replace and unfreeze layers before wrapping the model"


def compare(steps):
    """Compare the optimizer's gradients with the mean of the ranks' own gradients.

    `steps` contains, for each step, a list of what StepRecorder wrote on each rank.
    Returns (number of correct steps, Finding or None).
    """
    count = 0
    for ranks in steps:
        if not names_of(ranks):
            return count, None  # FSDP reduces them itself
        factor, off = best_factor(ranks)
        if off and are_changed_alike(ranks, off):
            count += changed_at(ranks, off) is not None  # e.g. all add the same noise
            continue
        if off:
            found = describe(ranks, off)
            alone = any(is_alone(rank, name) for rank in ranks for name in off)
            if found.name == "exchange" and are_given_alike(ranks, off) and not alone:
                found.level = "LOOK"
                found.details[-1] = REPLACED
            return count, found
        if abs(factor / len(ranks) - 1) < FACTOR:
            return count, finding("added", exchanged_at(ranks[0]), ranks=len(ranks))
        # gradients scaled later were exchanged; shards are unknown here
        whole = set(ranks[0]["given"]) <= set(names_of(ranks))
        count += whole and abs(factor - 1) < FACTOR
    return count, None


def exchanged_at(step):
    """Return the line that exchanges a step's gradients, usually backward()."""
    return step["since"].get("reduced") or step["line"]


def scaled_at(step, factor):
    """Return the line that scales gradients by a factor or exchanges them, or None."""
    name = max(step["given"], key=lambda one: step["given"][one].numel())
    after = step["after"].get(name)
    if after is not None and step["since"].get("changed"):
        ratio, _ = relation(given_to(step, name), after)
        if abs(ratio / factor - 1) < FACTOR:
            return step["since"]["changed"]
    return step["since"].get("reduced")


def best_factor(ranks):
    """Return (factor of the mean that fits most gradients, names it doesn't fit)."""
    factors = [1, len(ranks)]
    for name in names_of(ranks)[:1]:
        given = given_to(ranks[0], name)
        if given is not None:
            factors.append(relation(given, mean_of(ranks, name))[0])
    best = None
    for factor in factors:
        off = parted(ranks, factor)
        if best is None or len(off) < len(best[1]):
            best = factor, off
        if not off:
            break
    return best


def mean_of(ranks, name):
    """Return the mean of the ranks' own gradients; a missing one counts as 0."""
    parts = [rank["own"][name] for rank in ranks if name in rank["own"]]
    return sum(parts) / len(ranks)


def given_to(rank, name):
    """Return the optimizer's gradient for a parameter before clipping, or None."""
    return rank["unclipped"].get(name, rank["given"].get(name))


def parted(ranks, factor):
    """Return the names of parameters whose gradient isn't `factor` times the mean."""
    names = []
    for name in names_of(ranks):
        mean = factor * mean_of(ranks, name)
        given = [given_to(rank, name) for rank in ranks]
        if not all(one is None or nearly(one, mean) for one in given):
            names.append(name)
    return names


def names_of(ranks):
    """Return names of parameters whose own and given gradients have one shape."""
    shapes = {}
    for rank in ranks:
        for name, gradient in rank["own"].items():
            given = given_to(rank, name)  # under FSDP, it may be a shard
            both = [gradient, gradient if given is None else given]
            shapes.setdefault(name, set()).update(one.shape for one in both)
    return [name for name in shapes if len(shapes[name]) == 1]


def describe(ranks, names):
    """Return a Finding for a step in which some gradients are not the mean."""
    which = f"{len(names)} of {len(names_of(ranks))} parameters: {some(names)}"
    for first in ranks:
        held = [name for name in names if given_to(first, name) is not None]
        if held:
            break
    given = torch.cat([given_to(first, name).flatten() for name in held])
    mean = torch.cat([mean_of(ranks, name).flatten() for name in held])
    factor, cosine = relation(given, mean)
    details = [which, f"{factor:.6f} times the mean's length, cosine {cosine:.6f}"]
    alone = all(is_alone(rank, name) for rank in ranks for name in names)
    if alone and are_given_alike(ranks, names):
        return finding("clip", first["since"]["clipped"], details)
    since = first["since"]
    changed = changed_at(ranks, names)
    if changed:
        return finding("exchange", changed, [*details, CHANGED], fix=SAME_CHANGE)
    if since.get("early"):
        details.append("clipped before the last backward() of the step")
        return finding("clip", since["early"], details)
    at, cause, fix = cause_of(first, names, alone)
    if at and at != first["line"]:
        details.append(f"backward() at {first['line']}")
    line = at or first["line"]
    told = [*details, cause]
    last = "sync" if fix == LAST else None
    return finding("exchange", line, told, fix=fix, cause=last)


def is_alone(rank, name):
    """Return whether a rank's optimizer gets what the rank computed itself."""
    given = given_to(rank, name)
    own = rank["own"].get(name)
    return given is not None and own is not None and nearly(given, own)


def are_given_alike(ranks, names):
    """Return whether all ranks step with equal gradients."""
    if not all(name in rank["given"] for rank in ranks for name in names):
        return False
    first, *others = [rank["given"] for rank in ranks]
    return all(nearly(one[name], first[name]) for one in others for name in names)


def changed_at(ranks, names):
    """Return the first line that changes averaged gradients, or None."""
    for rank in ranks:
        for name in names:
            held = rank["after"].get(name, given_to(rank, name))
            if held is None or not nearly(held, mean_of(ranks, name)):
                return None
    return next(filter(None, (rank["since"].get("changed") for rank in ranks)), None)


def are_changed_alike(ranks, names):
    """Return whether averaged gradients changed or were scaled alike on all ranks."""
    if not are_given_alike(ranks, names):
        return False
    if changed_at(ranks, names):
        return True
    for name in names:
        factor, cosine = relation(ranks[0]["given"][name], mean_of(ranks, name))
        if factor <= 0 or 1 - cosine > PARALLEL:
            return False
    return True


def cause_of(rank, names, alone):
    """Return (line, why gradients are not exchanged, fix), as far as known.

    `alone` is whether each rank's optimizer got what the rank computed itself.
    """
    since = rank["since"]
    unknown = [name for name in names if name not in rank["wrapped"]]
    if alone and since.get("reduced"):
        told = "only some gradients are exchanged here"
        return since["reduced"], told, "exchange every gradient"
    if alone and since.get("ignored"):
        return since["ignored"], "fully_shard ignores them", IGNORED
    if alone and not rank["wrapped"]:
        return None, "no module is wrapped in DDP", None
    if alone and unknown:
        told = f"DDP doesn't manage {unknown[0]}: when it wrapped the model, this was"
        return since["wrapped"], f"{told} frozen or not a part of it", THAWED
    if alone and since.get("past"):
        return since["past"], "the model call bypasses DDP", "call the DDP wrapper"
    if since.get("unsynced"):
        told = "the last backward() of the step is in no_sync()"
        return since["unsynced"], told, LAST
    if alone:
        told = "DDP wraps the model but did not average them"
        return None, told, "make sure every forward pass calls the DDP wrapper"
    told = "only some backward passes of the step are exchanged"
    return since.get("reduced"), told, None
