"""What is read: `make docs`, `side_by_side`, `notebooks`, `handouts`."""
