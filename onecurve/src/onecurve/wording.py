"""Words that messages and events share."""

SHOWN = 3  # of names
REORDERED = "one process has samples and random numbers in different orders"
RETURNS = "returns"  # instead of a condition: a function's result


def some(names):
    """Join the first names, with an ellipsis if there are more."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
