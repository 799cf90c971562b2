"""Compare the gradients of several ranks with one process's."""

from itertools import chain, count, islice

import torch

from onecurve.compare import exchange, rounding
from onecurve.feed.stored import order_name
from onecurve.rules import finding
from onecurve.wording import REORDERED

DRIFT = 1e4  # how much farther weights' rounding may move gradients, as in L-BFGS
FAR = 1e-2
DEPARTS = "the value set here for later steps differs first, on rank {}"
SHARE = "update it from all ranks' data: all_reduce or all_gather before the update"
NO_STEP = "no step has finite gradients on several ranks and on one"


def read_steps(folders):
    """Yield for each step a list of what each rank wrote into its folder.

    Stop at a gradient that isn't finite: nothing can be compared with it.
    """
    for number in count():
        paths = [folder / f"gradients{number}.pt" for folder in folders]
        if not all(path.exists() for path in paths):
            return
        ranks = [torch.load(path, weights_only=False) for path in paths]
        gradients = [one for facts in ranks for one in facts["given"].values()]
        if not all(one.norm().isfinite() for one in gradients):
            return
        yield ranks


def exchanged(folders, own_parts, split):
    """Return the result of `exchange.compare`.

    `own_parts` are names of weights that aren't copies, so their gradients aren't
    exchanged. If a model is `split`, ranks compute parts of gradients, so skip those.
    """
    steps = list(read_steps(folders))
    for ranks in steps:
        for facts in ranks:
            for name in own_parts:
                facts["own"].pop(name, None)
    return (0, None) if split else exchange.compare(steps)


def compare(several, one, by_weights=False):
    """Compare the steps of several ranks and of one, in a folder each.

    With `by_weights`, compare the weights at the start of each later step. Returns
    (number of equal steps, Finding or None, why the next can't be compared or None).
    """
    if by_weights:
        return compare_weights(several, one)
    equal = 0
    for *ranks, theirs in read_steps([*several, one]):
        ours = ranks[0]
        leave_out_others(ours, theirs)
        # clipping hides a factor, so compare unclipped gradients too
        after = ours["given"], theirs["given"]
        before = after[0] | ours["unclipped"], after[1] | theirs["unclipped"]
        same = rounding.measure(ours["short"])
        for pair in before, after:
            names = differing(*pair, same)
            if names:
                why = why_not(ranks, theirs, same, rounding.apart(*pair))
                if why == REORDERED:
                    keep_orders(several, one)
                if why:
                    return equal, None, why
                details, factor = difference(*pair, names, len(ranks))
                clipped = ours["since"].get("clipped") if pair is after else None
                by_hand = factor and exchange.scaled_at(ours, factor)
                line = clipped or by_hand or ours["line"]
                found = finding("gradient", line, details, ranks=len(ranks))
                found.factor = factor
                blame_state(found, read_steps([*several, one]), equal)
                return 0, found, None
        equal += 1
    return equal, None, None if equal else NO_STEP


def blame_state(found, steps, number):
    """Point a Finding about a step to a state of earlier steps that departs before it.

    Gradients of the steps before `number` are equal. `steps` yields what each rank
    wrote, and one process last. What a step's passes changed is in the next one.
    """
    departed = []
    for *ranks, theirs in islice(steps, number + 2):
        for key, state in theirs["states"].items():
            ours = [rank["states"].get(key, state) for rank in ranks]
            off = [str(rank) for rank, one in enumerate(ours) if departs(one, state)]
            if off and (state["step"], state["late"]) < (number, True):
                departed.append((state["time"], state["line"], " and ".join(off)))
    if departed:
        _, line, off = min(departed)
        found.details += [DEPARTS.format(off), f"seen at {found.line}"]
        found.line, found.fix, found.factor = line, SHARE, None


def departs(ours, theirs):
    """Return whether a state has other numbers, in any order, but as many.

    With more or fewer, it is the samples' own, such as hidden states.
    """
    a, b = ((one["value"] * 1.0).sort().values for one in (ours, theirs))
    return a.shape == b.shape and not rounding.close(a, b)


def keep_orders(several, one):
    """Keep for each step at which place among the ranks' samples one process's are."""
    for number, (*ranks, theirs) in enumerate(read_steps([*several, one])):
        rows, others = rows_of(ranks), rows_of([theirs])
        order = [rows.index(one) for one in others if one in rows]
        torch.save(torch.tensor(order), several[0] / order_name(number))


def rows_of(ranks):
    """Return the samples of the ranks' first passes in a step."""
    return list(chain(*(rank["passes"][0] for rank in ranks if rank["passes"])))


def compare_weights(several, one):
    """Return what `compare` does, by the weights at the start of each later step."""
    equal = 0
    steps = read_steps([*several, one])
    next(steps, None)  # before the first step, they prove nothing
    for *ranks, theirs in steps:
        ours = {}
        for rank in ranks:  # a sharded optimizer has different ones on each rank
            ours |= rank["weights"]
        if differing(ours, theirs["weights"], rounding.measure(ranks[0]["short"])):
            found = finding("gradient", ranks[0]["line"], ranks=len(ranks))
            return 0, found, "its weights differ on one rank"
        equal += 1
    return equal, None, None if equal else NO_STEP


def leave_out_others(ours, theirs):
    """Remove from one rank's facts what a sharded optimizer lacks on rank 0."""
    others = set(theirs["weights"]) - set(ours["weights"])
    others |= set(ours["own"]) & set(theirs["given"]) - set(ours["given"])
    for kind in "weights", "given", "unclipped":
        theirs[kind] = {one: theirs[kind][one] for one in theirs[kind].keys() - others}


def why_not(ranks, theirs, same, off):
    """Return why a step of several ranks and of one can't be compared, or None.

    `off` is how far the gradients are apart.
    """
    ours = ranks[0]
    samples = sorted(one for rank in ranks for one in rank["samples"])
    alike = bool(samples) and samples == theirs["samples"]
    if not (ours["taken"] or alike):
        return "samples do not come from a DataLoader"
    if len({rank["taken"] for rank in ranks}) > 1:
        return "ranks read different numbers of batches in a step"
    if ours["taken"] != theirs["taken"]:
        numbers = f"{ours['taken']} on several ranks, {theirs['taken']} on one"
        return f"the number of batches per step differs: {numbers}"
    if ours["lost"] or theirs["lost"]:
        return "random numbers are drawn between batch and step"
    rows, others = rows_of(ranks), rows_of([theirs])
    if theirs["joined"] and rows != others and sorted(rows) == sorted(others):
        return REORDERED
    pair = ours["weights"], theirs["weights"]
    if differing(*pair, same) or off < min(DRIFT * rounding.apart(*pair), FAR):
        return "weights depend on the number of ranks"
    return None


def differing(ours, theirs, same):
    """Return the names whose tensors fail same(a, b); a missing one counts as 0."""
    of_one = {name: (ours | theirs)[name] for name in sorted(set(ours) ^ set(theirs))}
    names = [name for name, tensor in of_one.items() if tensor.any()]
    for name in ours:
        if name in theirs and not same(ours[name], theirs[name]):
            names.append(name)
    return names


def difference(ours, theirs, names, ranks):
    """Return (lines on how gradients of some names differ, a factor or None)."""
    both = [name for name in names if name in ours and name in theirs]
    if both != names or any(ours[name].shape != theirs[name].shape for name in names):
        told = f"one of the two runs has no gradient of the same shape: {names[0]}"
        return [told], None
    a = torch.cat([ours[name] for name in names])
    b = torch.cat([theirs[name] for name in names])
    ratio, cosine = rounding.relation(a, b)
    factor = ratio if 1 - cosine < exchange.PARALLEL else None
    details = [f"cosine {cosine:.6f}, length {ratio:.6f}"]
    if factor:
        details = [rounding.told(ratio, ranks)]
    if len(names) < len(ours):
        details.append(f"{len(names)} of {len(ours)} parameters: {names[0]} ...")
    return details, factor
