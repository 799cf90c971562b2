"""It may still run when its tensor is used."""

# Logged by watch/collectives.py.
LEVEL = "LOOK"
MESSAGE = "nothing waits for the asynchronous {name}"
FIX = "call wait() on the handle before the tensor is used"
FOLLOWS = "exchange", "added", "gradient", "weights", "clip", "evaluated_weights"
