"""A condition on the rank guards the print, so the value covers only a part of the
data. It is a LOOK if training computes it.
"""

from onecurve.evidence.found import found, of_each_rank
from onecurve.evidence.printed import QUOTED, are_losses, printed_by_some

LEVEL = "ERROR"
MESSAGE = "printed value comes from one rank only: {text}"
FIX = "all_reduce its sum and count first"
ORIGIN = ""  # any statement that computes it


def find(seen):
    told = set()
    for events, text, values in printed_by_some(seen):
        branch = events[0]["branch"]
        line = events[0]["lines"][text]
        # an item of a list or dict only if the branch has no other finding
        held = "[" in text and branch in told
        if not events[0]["reduced"] and (line, text) not in told and not held:
            told |= {(line, text), branch}
            trained = text.startswith(QUOTED) or are_losses(events, values)
            level = "LOOK" if trained else events[0]["level"]
            numbers = (f"{value:.6f}" for value in values)
            yield found(line, of_each_rank(numbers), level, text=text)
