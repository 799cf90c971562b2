"""Compare the ranks' gradients with gradients recomputed for each rank alone.

One process per rank replays that rank's batches and random numbers (`ReplayedRank`).
The gradients that the optimizer received must be a weighted sum of these; a weight of
1/W for every rank means they were averaged. No batches are merged.
"""

from contextlib import suppress
from itertools import pairwise, takewhile

import torch

from onecurve.compare import exchange, rounding
from onecurve.compare.exchange import given_to
from onecurve.compare.gradients import NO_STEP, read_steps
from onecurve.compare.loss_scale import divisor_of, is_about, share_of
from onecurve.rules import finding
from onecurve.rules.exchange import LAST
from onecurve.wording import some

OTHER = "rank {rank}'s loss differs when it runs alone: {alone:.6f}, not {ours:.6f}"
THINNED = range(30_000, 40_001)  # numbers of a tensor that may not be kept whole
MEANS = "use sum * world_size / count_of_all"


class Unclear(Exception):
    """The runs can't be compared; the message says why."""


class Uncounted(Unclear):
    """They can, but the weight of one sample or token on each rank is unknown."""


def compare(several, alone, exchanged):
    """Compare the steps of several ranks with those of one process per rank.

    `exchanged` is whether the optimizer is known to get the ranks' mean gradient.
    Returns (number of correct steps, Finding or None, why the next step can't be
    compared or None, number of steps that begin with the ranks' weights).
    """
    followed = sum(1 for _ in takewhile(begins_alike, pairs(several, alone)))
    return *compare_steps(pairs(several, alone), exchanged), followed


def pairs(several, alone):
    """Yield for each step what several ranks wrote, and what each wrote alone."""
    return zip(read_steps(several), read_steps(alone), strict=False)


def begins_alike(step):
    """Return whether each process begins a step with the several ranks' weights.

    A model may have more numbers than `stored.REPLAYED`, or its weights may have been
    on "meta" when the optimizer was created. Equal losses prove nothing: a layer's
    output may be multiplied by 0.
    """
    ranks, others = step
    weights, same = ranks[0]["weights"], rounding.measure(ranks[0]["short"])
    for other in others:
        for name in weights.keys() & other["weights"].keys():
            ours = weights[name]
            if ours.is_meta or not same(ours, other["weights"][name]):
                return False
    return True


def compare_steps(steps, exchanged):
    """Return the result of `compare` without its last number."""
    right = 0
    unknown = None
    for ranks, others in steps:
        try:
            found = judge(ranks, others)
        except Uncounted as why:
            found, unknown = None, str(why)
        except Unclear as why:
            with suppress(Unclear):  # they average: are their own losses' counts equal?
                means = torch.full((len(ranks),), 1 / len(ranks))
                return right, exchanged and by_counts(ranks, ranks, means), str(why)
            return right, None, str(why)
        if found:
            return right, found, None
        right += 1
    return right, None, unknown if right else NO_STEP


def judge(ranks, others):
    """Return a Finding for one step, or None if it is correct. Raises Unclear.

    `ranks` is what each of several ranks wrote, `others` what each wrote alone.
    """
    same = rounding.measure(ranks[0]["short"])
    if not begins_alike((ranks, others)):
        raise Unclear("one process doesn't have all of the ranks' weights")
    share = share_of_one(ranks, others)
    if change_alike(ranks, others):
        ranks = [rank | {"unclipped": rank["after"]} for rank in ranks]
    given, parts = columns(ranks, others)
    best = list(given)
    for weights in candidates(given, parts, share / len(ranks)):
        off = [name for name in given if not fits(name, given, parts, weights, same)]
        if not off:
            return by_weights(ranks, others, weights / share)
        best = min(best, off, key=len)
    raise_where_losses_differ(ranks, others, share)
    weights = fitted({name: given[name] for name in best}, parts)
    details = ["they are not a weighted sum of each rank's own gradients"]
    found = None
    if all(fits(name, given, parts, weights, same) for name in best):
        found = by_weights(ranks, others, weights / share)
    found = found or finding("gradient", ranks[0]["line"], details, ranks=len(ranks))
    found.details.append(f"{len(best)} of {len(given)} parameters: {some(best)}")
    return found


def change_alike(ranks, others):
    """Return whether ranks, and each alone, change the mean alike, as clipping does."""
    first = ranks[0]
    names = list(first["given"])
    whole = [name for name in names if len(first["given"][name]) not in THINNED]
    means = [{"given": rank["after"]} for rank in ranks]
    pairs = (means, names), (ranks, names), ([first, *others], whole)
    return all(exchange.are_given_alike(*pair) for pair in pairs)


def candidates(given, parts, mean):
    """Yield weights that may produce the gradients, the likely ones first."""
    largest = max(given, key=lambda name: given[name].numel())
    yield torch.full((len(parts[largest]),), mean, dtype=given[largest].dtype)
    yield fitted(given, parts)
    yield fitted({largest: given[largest]}, parts)


def share_of_one(ranks, others):
    """Return one process's passes per pass of its rank: 1 or W. Raises Unclear."""
    passes = {len(rank["losses"]) for rank in ranks}
    alone = {len(other["losses"]) for other in others}
    if len(passes) > 1 or len(alone) > 1 or not min(passes | alone):
        raise Unclear("ranks run different numbers of backward passes per step")
    share = alone.pop() / passes.pop()
    if share not in (1, len(ranks)):
        raise Unclear("the number of backward passes per step differs on one rank")
    return share


def columns(ranks, others):
    """Return ({name: optimizer's gradient}, {name: [what each rank's passes add]})."""
    given = {}
    parts = {}
    passes = len(ranks[0]["losses"])
    held = set.intersection(*(set(other["after_pass"][0]) for other in others))
    for name in ranks[0]["weights"]:
        gradient = given_to(ranks[0], name)
        if name not in held or gradient is None:
            continue
        parts[name] = []
        for other in others:
            after = [sums[name] for sums in other["after_pass"][: passes + 1]]
            for before, now in pairwise(after):
                parts[name].append(now - before)
        if any(one.shape != gradient.shape for one in parts[name]):
            raise Unclear("parameters have different shapes on one rank")
        given[name] = gradient - others[0]["after_pass"][0][name]
    if not given:
        raise Unclear("no parameter with the same name has a gradient on one rank")
    return given, parts


def fitted(given, parts):
    """Return the weights, of shape (ranks x passes), whose sum of parts fits given."""
    gram = 0
    right = 0
    for name, gradient in given.items():
        matrix = torch.stack(parts[name]).double()
        gram = gram + matrix @ matrix.T
        right = right + matrix @ gradient.double()
    weights = torch.linalg.pinv(gram, rtol=1e-12, hermitian=True) @ right
    return weights.to(gradient.dtype)


def fits(name, given, parts, weights, same):
    """Return whether a parameter's gradient is the weighted sum of its parts."""
    total = sum(w * part for w, part in zip(weights, parts[name], strict=True))
    return same(given[name], total)


def by_weights(ranks, others, weights):
    """Judge weights, one for each pass of each rank; a mean's add up to 1."""
    line = ranks[0]["line"]
    count = len(ranks)
    weights = weights.view(count, -1)
    if ranks[0]["short"]:
        weights = weights.float()  # as imprecise as the exchange
    scale = share_of(ranks) or 1
    if is_about(weights.sum(0).mean() * scale, 1):
        weights = weights * scale  # a GradScaler divided the gradients by it
    of_passes = weights.sum(0)
    if is_about(of_passes.min(), 0) and not is_about(of_passes.max(), 0):
        number = int(of_passes.argmin()) + 1
        told = f"backward pass {number} of {len(of_passes)} contributes no gradients"
        return finding("exchange", line, [told], fix=LAST, cause="sync")
    if not is_about(weights.max(1).values, weights.min(1).values):
        raise Unclear("the backward passes of a step have different weights")
    of_ranks = weights.mean(1)
    total = of_ranks.sum()
    if is_about(of_ranks[0], total) and is_about(of_ranks[1:], 0):
        return finding("exchange", line, ["rank 0 uses only its own gradients"])
    if is_about(total, 1):
        return by_counts(ranks, others, of_ranks)
    line = exchange.exchanged_at(ranks[0])
    if is_about(total, count):
        return finding("added", line, ranks=count)
    told = [rounding.told(float(total), count)]
    return finding(
        "gradient", exchange.scaled_at(ranks[0], total) or line, told, ranks=count
    )


def by_counts(ranks, others, weights):
    """Judge the weight of one sample or token on each rank. Raises Uncounted."""
    divisors = [divisor_of(other) for other in others]
    if None in divisors:
        raise Uncounted("it is unknown how many values each rank's loss averages")
    counts = weights / torch.tensor(divisors)
    if is_about(counts / counts.mean(), 1):
        return None
    told = [f"1/{1 / float(one):.1f}" for one in counts]
    details = [f"the weight of one value depends on its rank: {', '.join(told)}"]
    line = ranks[0]["line"]
    return finding("gradient", line, details, fix=MEANS, ranks=len(ranks))


def raise_where_losses_differ(ranks, others, share):
    """Raise Unclear if a rank alone computes a different loss, so another gradient.

    With `share` times as many passes, each loss may be divided by `share`.
    """
    for rank, (own, other) in enumerate(zip(ranks, others, strict=True)):
        if own["samples"] != other["samples"]:  # the loss may be equal by chance
            raise Unclear(f"rank {rank} alone takes different samples")
        for ours, alone in zip(own["losses"], other["losses"], strict=False):
            off = min(abs(ours - alone), abs(ours - share * alone))
            if off > 1e-5 * abs(ours):
                raise Unclear(OTHER.format(rank=rank, alone=alone, ours=ours))
