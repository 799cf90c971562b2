"""Words that messages share."""

SHOWN = 3  # of names


def some(names):
    """Join the first names, with an ellipsis if there are more."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
