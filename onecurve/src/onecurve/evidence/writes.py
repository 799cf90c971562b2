"""Find what made a weight differ between ranks."""

import math


def since_equal(seen, earlier, by_rank, name):
    """Return each rank's events since all ranks had an equal weight of this name.

    `by_rank` are the events with which it differs, and `earlier` such dicts before it.
    """
    times = dict.fromkeys(seen.ranks, 0)
    for one in earlier:
        values = [event["weights"].get(name) for event in one.values()]
        if len(values) == len(times) and values[0] and len(set(values)) == 1:
            times = {rank: event["time"] for rank, event in one.items()}
    parts = []
    for rank, since in times.items():
        until = by_rank[rank]["time"] if rank in by_rank else math.inf
        events = seen.events[rank]
        parts.append([one for one in events if since < one.get("time", 0) <= until])
    return parts


def changed_by(parts, name):
    """Return {line: ranks} of what changes a weight outside of optimizer steps.

    `parts` is what `since_equal` returned.
    """
    lines = {}
    for rank, events in enumerate(parts):
        for event in events:
            for line, names in event.get("written", {}).items():
                if name in names:
                    lines.setdefault(line, set()).add(rank)
    return lines


def unlike_gradients(parts, name):
    """Return the first steps, one of each rank, whose gradients differ, or None."""
    steps = [
        [one for one in part if name in one.get("gradients", ())] for part in parts
    ]
    for each in zip(*steps, strict=False):
        if len({one["gradients"][name] for one in each}) > 1:
            return each
    return None
