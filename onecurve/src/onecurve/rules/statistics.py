"""No wrapper makes these buffers equal. It may be a running mean in your own module, or
something that a network draws with a seed per rank.
"""

from collections import defaultdict

from onecurve.evidence.evaluations import in_both
from onecurve.evidence.found import found
from onecurve.evidence.seen import first_split

LEVEL = "LOOK"
MESSAGE = "buffers differ between ranks: {name}"
FIX = "broadcast their initial values and all_reduce what updates them"
DDP = "DDP overwrites them with rank 0's unless broadcast_buffers=False"


def find(seen):
    if seen.of("split"):
        return
    for each in used_together(seen):
        name = first_split([one["buffers"] for one in each])
        if name:
            first = each[0]
            told = [f"used at {first['line']}" if first["line"] else "at the end"]
            told += [DDP] if "wrapped" in first else []
            yield found(first["made"] or first["line"], told, cause="buffer", name=name)
            return


def used_together(seen):
    """Yield tuples of events in which ranks use a module's buffers in the same step."""
    tables = [defaultdict(list) for _ in seen.ranks]
    for rank, table in enumerate(tables):
        for event in seen.of("statistics", rank):
            table[event["made"], event["steps"]].append(event)
    yield from in_both(tables)
