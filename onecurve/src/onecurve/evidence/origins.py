"""Patterns of the statements that compute a value, for a rule's ORIGIN."""

LOSS = r"^(?!\w[\w.]*\.backward\()"  # more than name.backward()
COMPUTES = r"\.step\(\)$|^(?!.*lambda).* (\*|//?) "  # or steps too often
ORDERS = "randperm|permutation|shuffle"
BY_RANK = r"=.*rank\b(?!\()"
