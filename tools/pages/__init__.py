"""Pages and pictures: `make docs`, `side_by_side`, `notebooks`."""
