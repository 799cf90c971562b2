"""The loss is scaled wrongly or averaged over unequal counts, or a running mean is of
each rank's own data. The details compare with one process's gradient. On two ranks, a
length of 0.5 means a division by the number of ranks, and 2 that gradients are summed.
"""

from onecurve.evidence.origins import LOSS

# Made by compare/gradients.py and compare/per_rank.py.
LEVEL = "ERROR"
MESSAGE = "gradients on {ranks} ranks differ from those of 1 process"
FIX = "the ranks' mean loss must equal the whole batch's loss"
FOLLOWS = ("added",)
ORIGIN = LOSS
