"""Recognize tensor parallelism that a script implements itself."""

from onecurve.evidence.samples import same_rows


def mark_split(seen):
    """Add the event `split` to ranks whose forward passes join their own shards."""
    managed = any(seen.of(kind) for kind in ("ddp", "shard", "split"))
    if len(seen.ranks) < 2 or managed or not same_rows(list(seen.training_passes())):
        return
    begun = [events[0]["weights"] for events in seen.on_all("weights") if events]
    if any(one != begun[0] for one in begun) and all(map(joins_always, seen.events)):
        facts = {"ranks": list(seen.ranks), "parts": False, "by_hand": True}
        for events in seen.events:
            events.append({"kind": "split", "line": None, **facts})


def joins_always(events):
    """Return whether a collective joins shards in each training pass."""
    joined = False
    for event in events:
        if event["kind"] == "pass" and event["grad"]:
            if not joined:
                return False
            joined = False
        joined = joined or event.get("joins", False)
    return True
