"""A condition on the rank guards the print, so the value covers only a part of the
data. It is a LOOK if training computes it, or if `reduce` is used.
"""

from onecurve.evidence.found import found
from onecurve.evidence.printed import QUOTED, each_told, printed_by_some, reduced

LEVEL = "ERROR"
MESSAGE = "printed value comes from one rank only: {text}"
FIX = "all_reduce its sum and count first"
ORIGIN = ""  # any statement that computes it


def find(seen):
    calls = [call["name"] for call in seen.of("collective_call")]
    told = set()
    for events, text, values in printed_by_some(seen):
        branch = events[0]["branch"]
        line = events[0]["lines"][text]
        # an item of a list or dict only if the branch has no other finding
        held = "[" in text and branch in told
        if (line, text) not in told and not held and not reduced(seen, events, values):
            told |= {(line, text), branch}
            # after dist.reduce of several numbers, one rank may print what it has
            unsure = "reduce" in calls or text.startswith(QUOTED)
            level = "LOOK" if unsure else events[0]["level"]
            yield found(line, each_told(values), level, text=text)
