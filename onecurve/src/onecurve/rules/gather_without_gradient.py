"""Features from other ranks count as constants, so the gradient lacks a part."""

# Logged by watch/collectives.py.
LEVEL = "LOOK"
MESSAGE = "no gradient flows back through {name}"
FIX = "use torch.distributed.nn.functional.all_gather if gradients should flow back"
