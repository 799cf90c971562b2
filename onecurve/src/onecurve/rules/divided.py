"""Each gradient is 1/W of one process's, or W times as long. Adam hides such a factor,
and so does clipping. It is checked only if one process can't do all ranks' work.
"""

# Made by compare/loss_scale.py.
LEVEL = "LOOK"
MESSAGE = "the loss is {how} by the number of ranks, but gradients are already averaged"
FIX = "drop the factor if each rank's loss is the mean over its own batch"
ORIGIN = r" (/|\*) |\.(div|mul)_?\("
