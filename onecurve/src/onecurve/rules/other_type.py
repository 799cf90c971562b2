"""After `ddp_model.double()`, for example, DDP no longer exchanges any gradient,
without an error ([pytorch#104336](https://github.com/pytorch/pytorch/issues/104336)).
"""

# Logged by watch/training.py.
LEVEL = "ERROR"
MESSAGE = "the model's dtype changed after it was wrapped"
FIX = "convert the model first, then wrap it"
FOLLOWS = ("weights", "clip", "evaluated_weights", "by_world")
