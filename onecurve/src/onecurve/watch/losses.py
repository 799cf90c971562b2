"""Record the targets of each loss, and for `feed.step_recorder` its sum and mean."""

from inspect import signature

import torch

from onecurve.set_up.replace import replace
from onecurve.watch.events import digest

LOSSES = ["cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss"]
LOSSES += ["binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss"]


class Losses:
    """Sums and means of PyTorch's losses over samples or tokens."""

    def __init__(self, script):
        self.script = script
        self.in_one = False
        self.begin()

    def begin(self):
        self.sums = []
        self.means = []

    def install(self):
        for name in LOSSES:
            replace(f"torch.nn.functional:{name}", self.loss_function)

    def loss_function(self, original, input, target, *args, **options):
        """Wrap a loss function: record a scalar loss as sum and mean."""
        outermost = not self.in_one
        self.in_one = True
        try:
            loss = original(input, target, *args, **options)
        finally:
            self.in_one = not outermost
        if not (outermost and torch.is_grad_enabled()):
            return loss
        self.script.targets.append(digest(target))
        if loss.dim() == 0:
            given = signature(original).bind(input, target, *args, **options).arguments
            is_sum = given.get("reduction") == "sum"
            count = count_of(target, given)
            value = loss.detach().item()
            self.sums.append(value if is_sum else value * count)
            self.means.append(value / max(count, 1) if is_sum else value)
        return loss


def count_of(target, given):
    """Return how many elements a mean loss averages over."""
    if target.is_floating_point():
        return target.numel()
    return int((target != given.get("ignore_index", -100)).sum())
