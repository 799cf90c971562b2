"""How fast, and why: `make bench`, `trace`, `memory`."""
