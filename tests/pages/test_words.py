"""Promise: what is marked in a changed line is what changed."""

from tools.pages import words


def test_changed_words_are_tokens_of_python():
    """A number, an operator and a name each count as one; a string by its words."""
    for old, new, expected in [
        ("a = one(0.1)", "a = two(0.1)", ("one", "two")),
        ("rate = 0.1", "rate = 0.01", ("0.1", "0.01")),
        ("if a == b:", "if a <= b:", ("==", "<=")),
        ("x = f(a).g(b)", "x = p(q).r(b)", ("f(a).g", "p(q).r")),  # not in five pieces
        ('print("two GPUs")', 'print("six GPUs")', ("two", "six")),
        ('"""Take one step', '"""Take two step', ("one", "two")),  # breaks off
        ("    run()", "        run()", ("    ", "        ")),
        ("same", "same", ("", "")),
    ]:
        marks = words.changed_words(old, new)
        texts = [
            "".join(line[start:end] for start, end in found)
            for line, found in zip((old, new), marks, strict=True)
        ]
        assert texts == list(expected)
