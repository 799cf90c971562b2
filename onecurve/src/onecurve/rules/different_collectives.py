"""The details show each rank's line, and where their ways parted."""

from onecurve.evidence.found import found

LEVEL = "ERROR"
MESSAGE = "ranks call {what} (call {number})"
FIX = "make every rank run the same collectives in the same order"
SAME = "give the tensor the same shape and dtype on every rank"
NO_MORE = "no further call"  # to collectives that other ranks call


def find(seen):
    difference = seen.first_parting()
    if difference and not seen.of("join"):  # join() calls collectives unseen
        number, rank, first, other = difference
        details = []
        what, fix = "different collectives", None
        sizes = first and other and first["name"] == other["name"]
        if sizes and first["line"] == other["line"]:
            what, fix = f"{first['name']} with different tensors", SAME
        for one, call in (0, first), (rank, other):
            call = call or forward_of(seen.events[one])
            of = f" of {call['numbers']} {call['dtype']} numbers" if sizes else ""
            told = f"{call['name']}{of} at {call['line']}" if call else NO_MORE
            details.append(f"rank {one}: {told}")
        ways = [way_to(number, seen.events[one]) for one in (0, rank)]
        details += diverging(ways, [0, rank])
        line = (first or other)["line"]
        yield found(line, details, fix=fix, what=what, number=number)


def forward_of(events):
    """Return the DDP forward() in which a rank is waiting, like a call, or None."""
    for event in events[-1:]:
        if event["kind"] == "way" and event["pairs"]:
            return {"name": "forward", "line": event["pairs"][-1][-1]}
    return None


def way_to(number, events, kind="collective_call"):
    """Return pairs of lines before a rank's n-th such event, since the one before."""
    pairs = []
    for event in events:
        if event["kind"] == "way":
            pairs += event["pairs"]
        elif event["kind"] == kind and event.get("whole", True):
            number -= 1
            if not number:
                break
            pairs = []
    return pairs


def diverging(ways, ranks):
    """Return as details after which line two ranks execute different ones, if any."""
    after = [{}, {}]
    for lines, way in zip(after, ways, strict=True):
        for line, following in way:
            lines.setdefault(line, set()).add(following)
    for line, _ in reversed(min(ways, key=len)):
        each = [lines.get(line, set()) for lines in after]
        if all(each) and not set.intersection(*each):
            told = [f"the ranks take different ways after {line}"]
            for rank, lines in zip(ranks, each, strict=True):
                told.append(f"rank {rank} goes on to {min(lines)}")
            return told
    return []
