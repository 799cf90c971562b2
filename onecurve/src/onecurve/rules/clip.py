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
OF_SHARDS = "use clip_grad_norm_ on the parameters: its norm covers all ranks' shards"
CLOSE_FACTORS = 1e-2  # relative: factors of shards may be in bfloat16


def find(seen):
    for clips in seen.together("clip"):
        norms = [clip["norm"] for clip in clips]
        if max(norms) - min(norms) > 1e-4 * max(norms):
            yield found(clips[0]["line"], of_each_rank(norms), fix=clips[0]["fix"])
            break
    for each in seen.together("parts_scaled"):
        factors = [one["factor"] for one in each]
        if None in factors:
            continue
        if max(factors) - min(factors) > CLOSE_FACTORS * max(factors):
            told = of_each_rank(f"shards scaled by {factor:.4g}" for factor in factors)
            yield found(each[0]["line"], told, fix=OF_SHARDS, cause="norm")
            return
