"""Is a loss divided by the number of ranks, though their gradients are averaged?

What a number of a loss, such as that of a sample, counts in `backward()` beside what it
counts in PyTorch's function: 1 over all passes of a step, on the mean of the ranks. If
it is 1/W on W ranks, and 1/(W + 1) on one more, it goes by their number.
"""

from onecurve.findings import finding
from onecurve.gradients import read_steps

CLOSE = 1e-4  # of a share: a loss is as rough as its type
HOW = {-1: "divided", 1: "multiplied"}
TOLD = "weight of each loss in a step: {:.4f} on {} ranks, {:.4f} on {}"


def power_of(folders):
    """Return -1 where a loss counts 1/W in each step, 1 where it counts W, or None.

    `folders` are those of W ranks.
    """
    shares = [share_of(ranks) for ranks in read_steps(folders)]
    for power in HOW:
        right = len(folders) ** power
        if shares and all(one and abs(one / right - 1) < CLOSE for one in shares):
            return power
    return None


def share_of(ranks):
    """Return what a loss counts in a step, on the mean of the ranks; None if unknown.

    It is known where a backward pass has one of PyTorch's losses.
    """
    total = 0
    for rank in ranks:
        pairs = list(zip(rank["means"], rank["losses"], strict=False))
        if not pairs or len(rank["means"]) != len(rank["losses"]):
            return None
        if not all(mean for mean, _ in pairs):
            return None
        total += sum(loss / mean for mean, loss in pairs)
    return total / len(ranks)


def judge(several, wider, power):
    """Return a Finding where a loss goes by the number of ranks, or None.

    `several` are the folders of some ranks, `wider` those of more; `power` is what
    `power_of` returned of the former.
    """
    if power_of(wider) != power:
        return None
    ours, theirs = len(several), len(wider)
    told = TOLD.format(ours**power, ours, theirs**power, theirs)
    first = next(read_steps(several))
    return finding("divided", first[0]["line"], [told], how=HOW[power])
