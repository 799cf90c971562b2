"""Gradients are clipped before they are exchanged. Under FSDP or tensor parallelism,
each rank uses the norm of its shards only.
"""

from onecurve.evidence.found import found, of_each_rank

# Also made by compare/exchange.py.
LEVEL = "ERROR"
MESSAGE = "each rank clips with a different gradient norm"
FIX = "clip after the last backward(), once gradients are averaged"
FOLLOWS = ("gradient",)
ONCE = True


def find(seen):
    for clips in seen.together("clip"):
        norms = [clip["norm"] for clip in clips]
        if max(norms) - min(norms) > 1e-4 * max(norms):
            yield found(clips[0]["line"], of_each_rank(norms), fix=clips[0]["fix"])
            return
