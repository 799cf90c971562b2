"""These parameters keep their initial values. It is an ERROR if the optimizer holds
tensors that the model no longer uses, such as weights before they were sharded.
"""

# Logged by watch/training.py.
LEVEL = "LOOK"
MESSAGE = "{left} of {count} parameters are not in any optimizer"
FIX = (
    "add them to an optimizer, made after the model is sharded, or call "
    "requires_grad_(False)"
)
