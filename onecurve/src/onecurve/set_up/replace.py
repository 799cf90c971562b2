"""Wrap or replace attributes of PyTorch and Python."""

import functools
from pkgutil import resolve_name

CLOCKS = ["perf_counter", "monotonic", "time", "process_time"]  # in the module time
CLOCKS += [f"{name}_ns" for name in CLOCKS]


def replace(name, substitute):
    """Replace an attribute, such as "torch.nn:Module.to", with `substitute`.

    A function gets the original as its first argument. Raises AttributeError.
    """
    owner, _, attribute = name.replace(":", ".").rpartition(".")
    owner = resolve_name(owner)
    original = getattr(owner, attribute)
    if isinstance(substitute, type | property):
        setattr(owner, attribute, substitute)
        return

    @functools.wraps(original)
    def called(*args, **options):
        return substitute(original, *args, **options)

    setattr(owner, attribute, called)
