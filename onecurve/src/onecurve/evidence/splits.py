"""Recognize weights that each rank keeps for itself: experts, or a script's shards."""

from itertools import pairwise, takewhile

from onecurve.evidence.samples import same_rows

MAKE_EQUAL = {"broadcast", "broadcast_object_list", "all_reduce"}  # weights, maybe


def own_parts(seen):
    """Return the names of weights meant to differ by rank.

    An all-to-all sends experts samples. They start different while others start equal.
    """
    begun = [{} for _ in seen.ranks]
    for first, events in zip(begun, seen.on_all("weights"), strict=True):
        for event in events:
            first |= event["weights"] | first
    alike = {one for one in begun[0] if len({each.get(one) for each in begun}) == 1}
    unlike = begun[0].keys() - alike
    calls = [call["name"] for call in seen.of("collective_call")]
    by_hand = any("by_hand" in one for one in seen.of("split"))  # by mark_split
    sent = alike and any(name.startswith("all_to_all") for name in calls)
    apart = kept_apart(seen, alike, unlike)
    if apart or not (sent or by_hand):
        return apart
    modules = {name.rpartition(".")[0] for name in unlike}
    return {name for name in begun[0] if name.rpartition(".")[0] in modules}


def kept_apart(seen, alike, unlike):
    """Return the names of weights that each rank keeps for itself, next to copies.

    They start `unlike`, and no one exchanges their gradients. Copies start `alike`, by
    a seed that ranks share, and get equal gradients.
    """
    before = takewhile(lambda one: one["kind"] != "weights", seen.events[0])
    equalized = MAKE_EQUAL & {one.get("name") for one in before}
    if equalized or seen.of("ddp") or seen.of("shard"):
        return set()
    equal, different = set(), set()
    for each in seen.together("before_step"):
        for name in each[0]["gradients"]:
            of_ranks = {one["gradients"].get(name) for one in each}
            (equal if len(of_ranks) == 1 else different).add(name)
    exchanged = equal - different
    is_meant = alike & exchanged and not unlike & exchanged
    return unlike & different if is_meant else set()


def mark_split(seen):
    """Add the event `split` to ranks whose forward passes join their own shards."""
    managed = any(seen.of(kind) for kind in ("ddp", "shard", "split"))
    passes = list(seen.training_passes())
    first = [each for each in passes if each[0]["id"] == passes[0][0]["id"]]
    if len(seen.ranks) < 2 or managed or not same_rows(first):
        return
    begun = [events[0]["weights"] for events in seen.on_all("weights") if events]
    joins = any(one != begun[0] for one in begun) and same_rows(passes)
    if seen.own_parts() or joins and all(map(joins_always, seen.events)):
        facts = {"ranks": list(seen.ranks), "parts": True, "by_hand": True}
        for events in seen.events:
            events.append({"kind": "split", "line": None, **facts})


def joins_always(events):
    """Return whether a collective joins shards in each training pass."""
    known = [one for one in events if one.get("joins") or one.get("grad")]
    pairs = pairwise([{}, *known])
    return all(first.get("joins") for first, one in pairs if one["kind"] == "pass")
