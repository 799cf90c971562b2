"""Attributes of PyTorch and Python that are replaced in a watched rank: `replace`.

Where a public hook sees as much, that is taken instead: of an optimizer's steps, of
files that Python opens or renames, of tensor functions.
"""

import functools
from pkgutil import resolve_name

COLLECTIVES = ["barrier", "monitored_barrier", "all_reduce", "broadcast", "reduce"]
COLLECTIVES += ["all_gather", "all_gather_object", "broadcast_object_list"]
COLLECTIVES += ["all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor"]
COLLECTIVES += ["gather", "scatter", "gather_object", "scatter_object_list"]
COLLECTIVES += ["all_to_all", "all_to_all_single", "send", "recv", "isend", "irecv"]

CLOCKS = ["perf_counter", "monotonic", "time", "process_time"]
CLOCKS += [f"{name}_ns" for name in CLOCKS]


def replace(name, substitute):
    """Put `substitute`, class or function, in the place of `module:attribute`.

    A function is called with the original before the arguments. Raises AttributeError
    where there is no such attribute.
    """
    owner, _, attribute = name.replace(":", ".").rpartition(".")
    owner = resolve_name(owner)
    original = getattr(owner, attribute)
    if isinstance(substitute, type | property):
        return setattr(owner, attribute, substitute)

    @functools.wraps(original)
    def called(*args, **options):
        return substitute(original, *args, **options)

    setattr(owner, attribute, called)
