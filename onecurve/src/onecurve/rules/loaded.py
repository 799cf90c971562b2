"""`strict=False` hides that the names in the file begin with `module.`."""

# Logged by watch/training.py.
LEVEL = "ERROR"
MESSAGE = "no weights are loaded: no name in the file matches the model"
FIX = "save the unwrapped model: model.module.state_dict()"
