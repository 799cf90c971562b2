"""What tells an object from all others of a run, also from those that are gone.

An `id` does not: it is given again to what is made later, on one rank and not on
another, and then they end an epoch after other numbers of batches.
"""

from itertools import count

from torch.utils.weak import WeakIdKeyDictionary

NUMBERS = WeakIdKeyDictionary()  # of what is still there
NEXT = count(1)
HELD = {}  # id -> what has no weak references, as a list: it stays


def own_number(one):
    """Return a number that no other object has had, or gets."""
    try:
        return NUMBERS.setdefault(one, next(NEXT))
    except TypeError:
        HELD[id(one)] = one
        return -id(one)
