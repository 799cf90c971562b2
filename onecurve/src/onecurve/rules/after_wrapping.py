"""DDP only exchanges the gradients of the parameters that it was given, in their dtype
at that time ([pytorch#104336](https://github.com/pytorch/pytorch/issues/104336)).
"""

# Logged by watch/training.py.
LEVEL = "ERROR"
MESSAGE = "the model changed after DDP wrapped it: {what}"
FIX = "change or convert the model first, then wrap it and create the optimizer"
FOLLOWS = "exchange", "gradient", "weights", "clip", "evaluated_weights", "by_world"
