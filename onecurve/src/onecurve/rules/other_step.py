"""It uses a part of a tensor, such as the norm of a shard. Adam may do that."""

# Made by compare/gradients.py.
LEVEL = "ERROR"
MESSAGE = "the optimizer changes weights otherwise than on 1 process: {name}"
FIX = "compute norms and means over all shards: all_reduce their sums of squares"
FOLLOWS = ("by_world",)
