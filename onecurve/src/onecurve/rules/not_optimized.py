"""These parameters keep their initial values."""

# Logged by watch/training.py.
LEVEL = "LOOK"
MESSAGE = "{left} of {count} parameters are not in any optimizer"
FIX = "add them to an optimizer or call requires_grad_(False)"
