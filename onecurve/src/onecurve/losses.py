"""What a loss is the sum of, and the mean: for `equal`."""

from inspect import signature

import torch

from onecurve.replace import replace

LOSSES = ["cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss"]
LOSSES += ["binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss"]


class Losses:
    """Keeps the sums and means of PyTorch's losses, over their samples or tokens."""

    def __init__(self):
        self.in_one = False
        self.begin()

    def begin(self):
        """Begin anew, after a step."""
        self.sums = []
        self.means = []

    def install(self):
        """Watch the functions."""
        for name in LOSSES:
            replace(f"torch.nn.functional:{name}", self.loss_function)

    def loss_function(self, original, input, target, *args, **options):
        """Around a loss: keep the sum of which it is, or has the mean."""
        outermost = not self.in_one
        self.in_one = True
        try:
            loss = original(input, target, *args, **options)
        finally:
            self.in_one = not outermost
        if outermost and torch.is_grad_enabled() and loss.dim() == 0:
            given = signature(original).bind(input, target, *args, **options).arguments
            is_sum = given.get("reduction") == "sum"
            count = count_of(target, given)
            value = loss.detach().item()
            self.sums.append(value if is_sum else value * count)
            self.means.append(value / max(count, 1) if is_sum else value)
        return loss


def count_of(target, given):
    """Return how many numbers a loss is the mean of, by its target and arguments."""
    if target.is_floating_point():
        return target.numel()
    return int((target != given.get("ignore_index", -100)).sum())
