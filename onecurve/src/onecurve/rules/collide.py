"""Numbers start at 0 on each rank, so merged results overwrite each other."""

# Logged by watch/collectives.py.
LEVEL = "LOOK"
MESSAGE = "dicts from different ranks share {twice} of {count} keys"
FIX = "key results by a sample number that is unique across ranks"
