"""Results are stored under a number that starts at 0 on each rank. Merged, one rank's
results overwrite another's.
"""

# Logged by watch/collectives.py.
LEVEL = "LOOK"
MESSAGE = "dicts from different ranks share {twice} of {count} keys"
FIX = "key results by a sample number that is unique across ranks"
