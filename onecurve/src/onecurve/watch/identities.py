"""Give each object a number that is never reused.

An `id` may be reused on one rank but not on another. These ranks would then end an
epoch after different numbers of batches.
"""

from itertools import count

from torch.utils.weak import WeakIdKeyDictionary

NUMBERS = WeakIdKeyDictionary()  # of live objects
NEXT = count(1)
HELD = {}  # id -> object without weak references, such as a list: kept alive


def own_number(one):
    """Return a number that no other object in the run ever gets."""
    try:
        return NUMBERS.setdefault(one, next(NEXT))
    except TypeError:
        HELD[id(one)] = one
        return -id(one)
