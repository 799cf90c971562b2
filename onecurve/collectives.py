"""Where two ranks part in their collectives, and what they say of each other's end."""

import re
from itertools import zip_longest

# What a rank says when another one has ended or never came: not the error to tell.
OF_OTHERS_END = r"(?i)Connection (closed|reset)|preamble|Broken pipe|Socket|timed? ?out"
OF_OTHERS_END += "|peer"


def is_of_others_end(error):
    """Return whether the text of an error is not this rank's own fault."""
    if error.startswith("torch.distributed.Dist"):
        return True
    return error.startswith("RuntimeError") and bool(re.search(OF_OTHERS_END, error))


def first_difference(calls):
    """Return (number, rank, call of rank 0, call of that rank) where ranks part.

    `calls` has a list of events for each rank. One that has no such call is None. None
    where all ranks make the same calls in the same order.
    """
    for rank in range(1, len(calls)):
        pairs = zip_longest(calls[0], calls[rank])
        for number, (first, other) in enumerate(pairs, start=1):
            if first is None or other is None:
                return number, rank, first, other
            if (first["name"], first["numbers"]) != (other["name"], other["numbers"]):
                return number, rank, first, other
    return None
