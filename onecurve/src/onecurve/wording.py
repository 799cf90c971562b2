"""Words that messages and events share."""

SHOWN = 3  # of names
RETURNS = "returns"  # instead of a condition: a function's result


def some(names):
    """Join the first names, with an ellipsis if there are more."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
