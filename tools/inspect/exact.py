"""A run whose gradients can be compared to the last bits but a few.

In float64 whatever the script asks for, without dropout, and with the statistics that
BatchNorm has from the start.
"""

import contextlib

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tools.watch.replace import replace

SHORT = {torch.float32, torch.float16, torch.bfloat16}
DROPOUTS = ["dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"]
DROPOUTS += ["feature_alpha_dropout"]
CASTS = ["float", "half", "bfloat16"]
DRAWS = {torch.rand, torch.randn, torch.randint, torch.normal, torch.bernoulli}
DRAWS |= {torch.rand_like, torch.randn_like, torch.randint_like}
DRAWS |= {torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.bernoulli_}


class InDouble(TorchFunctionMode):
    """A mode in which float64 is meant by every other floating-point type.

    `drawn` is called with what a function of DRAWS returns; its result stands for it.
    """

    reading = False  # while a file or a batch is read, types mean what they say

    def __init__(self, drawn):
        super().__init__()
        self.drawn = drawn

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if InDouble.reading:
            return function(*args, **kwargs)
        args = [double(value) for value in args]
        kwargs = {name: double(value) for name, value in kwargs.items()}
        result = function(*args, **kwargs)
        if function in DRAWS and torch.is_grad_enabled():
            return self.drawn(result)
        return result


@contextlib.contextmanager
def as_read():
    """Leave the types of numbers alone for a while."""
    before = InDouble.reading
    InDouble.reading = True
    try:
        yield
    finally:
        InDouble.reading = before


def load(original, *args, **options):
    """Around torch.load."""
    with as_read():
        return in_double(original(*args, **options))


def double(value):
    """Return float64 for a shorter type, and anything else as it is."""
    return torch.float64 if isinstance(value, torch.dtype) and value in SHORT else value


def in_double(value):
    """Return a batch with its floating-point tensors in float64."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.dtype in SHORT else value
    if isinstance(value, dict):
        return {name: in_double(one) for name, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(in_double(one) for one in value))
    if isinstance(value, list | tuple):
        return type(value)(in_double(one) for one in value)
    return value


def cast(original, tensor, *args, **options):
    """In place of a tensor's `float`, `half` and `bfloat16`."""
    return tensor.double()


def keep(original, module, *args, **options):
    """In place of a module's: its weights are in float64 already."""
    return module


def no_dropout(original, input, *args, **options):
    """In place of dropout."""
    return input


def attention(original, query, key, value, mask=None, dropout_p=0, *rest, **options):
    """Around attention: without dropout."""
    if "attn_mask" in options:
        mask = options.pop("attn_mask")
    return original(query, key, value, mask, 0.0, *rest, **options)


def batch_norm(original, input, mean, variance, weight=None, bias=None, *rest, **more):
    """Around batch normalization: by the statistics kept, where some are."""
    if mean is None:
        return original(input, mean, variance, weight, bias, *rest, **more)
    return functional.batch_norm.__wrapped__(input, mean, variance, weight, bias)


class Uncast(contextlib.ContextDecorator):
    """In place of torch.autocast."""

    def __init__(self, *args, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def policy(original, policy, *args, **options):
    """Around FSDP's policy of mixed precision: none."""
    original(policy)


def install(drawn):
    """Put the functions above in place; the default type is set by who starts us.

    `drawn` is for InDouble.
    """
    for name in DROPOUTS:
        replace(f"torch.nn.functional:{name}", no_dropout)
    replace("torch:dropout", no_dropout)
    replace("torch.nn.functional:scaled_dot_product_attention", attention)
    replace("torch.nn.functional:batch_norm", batch_norm)
    for name in CASTS:
        replace(f"torch:Tensor.{name}", cast)
        replace(f"torch.nn:Module.{name}", keep)
    replace("torch:autocast", Uncast)
    replace("torch.amp:autocast", Uncast)
    replace("torch.cuda.amp:autocast", Uncast)
    replace("torch.distributed.fsdp:MixedPrecisionPolicy.__init__", policy)
    replace("torch:load", load)
    InDouble(drawn).__enter__()
