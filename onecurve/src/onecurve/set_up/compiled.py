"""Replace torch.compile: keep its wrapper's names, but compile nothing."""

import torch


class Compiled(torch.nn.Module):
    """Replacement for torch.compile's wrapper, whose attributes are the module's."""

    def __init__(self, module):
        super().__init__()
        del self.training
        super().__setattr__("_orig_mod", module)

    def forward(self, *args, **options):
        return self._orig_mod(*args, **options)

    def __getattr__(self, name):
        if name == "_orig_mod":
            return super().__getattr__(name)
        return getattr(self._orig_mod, name)

    def __setattr__(self, name, value):
        setattr(self._orig_mod, name, value)


def compiled(original, model=None, *args, **options):
    """Replace torch.compile, also as a decorator."""
    if model is None:
        return lambda function: compiled(original, function)
    return Compiled(model) if isinstance(model, torch.nn.Module) else model
