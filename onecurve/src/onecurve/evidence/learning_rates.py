"""Learning rates on several ranks, next to those of one process."""

BY_HAND = "the script itself"


def step_pairs(comparison):
    """Return pairs of steps on W ranks and on one, those of each optimizer together."""
    pairs = []
    tables = by_optimizer(comparison.several), by_optimizer(comparison.one)
    for both in zip(*tables, strict=False):
        pairs += zip(*both, strict=False)
    return pairs


def by_optimizer(seen):
    """Return the steps of each optimizer, in the order of their first steps."""
    found = {}
    for step in seen.of("step"):
        found.setdefault(step["id"], []).append(step)
    return list(found.values())


def rates_differ(ours, theirs):
    """Return whether two events, such as steps, have different learning rates."""
    return set(ours.get("rates", [])) != set(theirs.get("rates", []))


def set_by(seen):
    """Return what sets the learning rates if no scheduler does."""
    rates = [step["rates"] for step in seen.of("step")]
    by_hand = rates[0] != rates[-1] and not seen.of("schedule")
    return BY_HAND if by_hand else "the optimizer"
