"""It contains weights and an epoch or a step but no optimizer or scheduler, or not
everything that the optimizer trains, or not the buffers next to the parameters.
"""

from onecurve.evidence.found import found

LEVEL = "LOOK"
MESSAGE = "checkpoint lacks {what}"
FIX = "save its state_dict() and load it when resuming"
RANKS = "one"


def find(seen):
    saved = [event for rank in seen.ranks for event in seen.of("saved", rank)[::-1]]
    held = {state for event in saved for state in event["holds"]}
    for event in saved:
        lacks = [one for one in event["lacks"] if one not in held]
        if lacks:
            yield found(event["line"], what=" and ".join(lacks))
            return
