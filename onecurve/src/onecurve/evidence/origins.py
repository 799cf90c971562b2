"""Patterns of the statements that compute a value, for a rule's ORIGIN."""

LOSS = r"^(?!\w[\w.]*\.backward\()"  # more than name.backward()
ORDERS = "randperm|permutation|shuffle"
BY_RANK = r"=.*rank\b(?!\()"
UNORDERED = r"\b(frozen)?set\((?!\))|\bhash\(|\{([^:{}\n]|\{[^}\n]*\})+ for "
