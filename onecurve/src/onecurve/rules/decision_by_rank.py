"""By this value, the script stops, saves, steps or keeps the best model."""

from itertools import chain

from onecurve.evidence.found import found, of_each_rank
from onecurve.evidence.printed import differing_by_rank

LEVEL = "LOOK"
MESSAGE = "each rank decides on its own value of {text}"
FIX = "all_reduce its sum and count before the comparison"
ORIGIN = ""  # any statement that computes it


def find(seen):
    told = set()
    parts = seen.first_parting() is not None
    kinds = ["decides", "compares"] if parts else ["decides"]
    differing = chain(*(differing_by_rank(seen, kind) for kind in kinds))
    for events, text, values in differing:
        line = events[0]["lines"][text]
        known = parts or not events[0]["reduced"]
        # 0 if another rank evaluates
        if known and not told & {line, text} and all(values):
            told |= {line, text}
            numbers = (f"{value:.6f}" for value in values)
            yield found(line, of_each_rank(numbers), text=text)
