"""Make gradients comparable up to the last few bits.

Run in float64 without dropout, and normalize with BatchNorm's initial statistics.
"""

import contextlib

import torch
from torch.overrides import TorchFunctionMode

from onecurve.set_up.replace import replace

# dtype -> its replacement.
LONG = {torch.float32: torch.float64, torch.float16: torch.float64}
LONG |= {torch.bfloat16: torch.float64, torch.complex64: torch.complex128}
CASTS = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}
DROPOUTS = ["dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"]
DROPOUTS += ["feature_alpha_dropout"]
DRAWS = {torch.rand, torch.randn, torch.randint, torch.normal, torch.bernoulli}
DRAWS |= {torch.rand_like, torch.randn_like, torch.randint_like}
DRAWS |= {torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.bernoulli_}
DRAWS |= {torch.Tensor.exponential_, torch.Tensor.random_, torch.randperm}
DRAWS |= {torch.multinomial, torch.Tensor.multinomial, torch.poisson}


class InDouble(TorchFunctionMode):
    """Replaces shorter floating-point dtypes with float64.

    `draw` is called instead of a function that draws random numbers, with the function
    and its arguments; `drawing` is called with a script's own generator before a draw.
    `follow` calls every other function, given it, its arguments and its options.
    """

    reading = False  # while a file or batch is read, dtypes are unchanged
    double = True  # False: dtypes are always unchanged

    def __init__(self, draw=None, drawing=None, follow=None):
        super().__init__()
        self.draw = draw
        self.drawing = drawing
        self.follow = follow

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if InDouble.reading:
            return function(*args, **kwargs)
        if function in CASTS and InDouble.double:
            function, args, kwargs = torch.Tensor.double, args[:1], {}
        if self.drawing and kwargs.get("generator"):
            self.drawing(kwargs["generator"])
        args = [double(value) for value in args]
        kwargs = {name: double(value) for name, value in kwargs.items()}
        if self.draw and function in DRAWS:
            return self.draw(function, *args, **kwargs)
        if self.follow:
            return self.follow(function, args, kwargs)
        return function(*args, **kwargs)


def double(value):
    """Return float64 for a shorter dtype, and any other value unchanged."""
    is_type = isinstance(value, torch.dtype) and InDouble.double
    return LONG.get(value, value) if is_type else value


@contextlib.contextmanager
def as_read():
    """Leave dtypes unchanged in this context."""
    before = InDouble.reading
    InDouble.reading = True
    try:
        yield
    finally:
        InDouble.reading = before


def load(original, *args, **options):
    with as_read():
        return original(*args, **options)


def in_double(value):
    """Return a batch with its floating-point tensors in float64."""
    if isinstance(value, torch.Tensor):
        return value.to(double(value.dtype))
    if isinstance(value, dict):
        return {name: in_double(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return like(value, [in_double(one) for one in value])
    return value


def like(value, items):
    """Return items as a list, tuple or named tuple, depending on a value's type."""
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def no_dropout(original, input, *args, **options):
    return input


def attention(original, query, key, value, attn_mask=None, dropout_p=0, *rest, **more):
    return original(query, key, value, attn_mask, 0.0, *rest, **more)


def batch_norm(original, input, running_mean, running_var, *rest, **more):
    """Wrap batch normalization; use the stored statistics, if any."""
    if running_mean is None:
        return original(input, running_mean, running_var, *rest, **more)
    weights = {name: more[name] for name in ("weight", "bias") if name in more}
    return original(input, running_mean, running_var, *rest[:2], **weights)


def recurrent(original, module, *args, **options):
    """Wrap the constructor of a recurrent network, without dropout."""
    original(module, *args, **options)
    module.dropout = 0.0  # applied by its kernel, not by a PyTorch function


def policy(original, policy, *args, **options):
    """Wrap the constructor of FSDP's mixed-precision policy, without its arguments."""
    original(policy)


def install(draw, drawing, follow, in_float64):
    """Install the functions above; the caller sets the default dtype.

    The first three are for InDouble. Unless `in_float64`, dtypes are unchanged.
    """
    InDouble.double = in_float64
    for name in DROPOUTS:
        replace(f"torch.nn.functional:{name}", no_dropout)
    replace("torch:dropout", no_dropout)
    replace("torch.nn.functional:scaled_dot_product_attention", attention)
    replace("torch.nn.functional:batch_norm", batch_norm)
    replace("torch.nn:RNNBase.__init__", recurrent)
    replace("torch.distributed.fsdp:MixedPrecisionPolicy.__init__", policy)
    replace("torch:load", load)
    InDouble(draw, drawing, follow).__enter__()
