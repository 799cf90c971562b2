"""Edit the text of a script: each change replaces a text that is there exactly once."""


def edit(text, *changes):
    """Return a text with changes, pairs (old, new), made one after the other.

    Raises ValueError, which names the old text, where it is not there exactly once.
    """
    for old, new in changes:
        count = text.count(old)
        if count != 1:
            raise ValueError(f"not once, but {count} times in the text: {old!r}")
        text = text.replace(old, new)
    return text
