"""Compare a value's weight in `backward()` with that in PyTorch's loss function."""

import torch

CLOSE = {torch.float64: 1e-5}  # of weights; correct scripts differ by 1e-9
ROUGH = 2e-3  # in shorter dtypes


def share_of(ranks):
    """Return a loss's mean weight in a step, None if a pass has no PyTorch loss."""
    total = 0
    for rank in ranks:
        means, losses = rank["means"], rank["losses"]
        if not means or not all(means) or len(means) != len(losses):
            return None
        total += sum(loss / mean for loss, mean in zip(losses, means, strict=True))
    return total / len(ranks)


def divisor_of(step):
    """Return the divisor of a step's summed losses; None if unknown or varying."""
    sums, losses = step["sums"], step["losses"]
    if not losses or not all(losses) or len(sums) != len(losses):
        return None
    divisors = [total / loss for total, loss in zip(sums, losses, strict=True)]
    divisor = divisors[0]
    whole = abs(divisor - round(divisor)) < 1e-6 * divisor
    return divisor if whole and is_about(torch.tensor(divisors) / divisor, 1) else None


def is_about(ours, theirs):
    """Return whether weights are equal up to rounding, by the first one's dtype."""
    ours = torch.as_tensor(ours)
    limit = CLOSE.get(ours.dtype, ROUGH)
    return bool((ours - theirs).abs().max() < limit)
