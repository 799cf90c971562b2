"""Put a function around an attribute of PyTorch or Python."""

import functools
from pkgutil import resolve_name

CLOCKS = ["perf_counter", "monotonic", "time", "process_time"]  # of the module time
CLOCKS += [f"{name}_ns" for name in CLOCKS]


def replace(name, substitute):
    """Put `substitute` in the place of an attribute, such as "torch.nn:Module.to".

    A function is called with the original before the arguments; a class or a property
    stands there as it is. Raises AttributeError for one that there is not.
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
