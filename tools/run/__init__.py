"""Running the stages: `make all`, `cpu`, `diff`, `compare`, `data`, `doctor`."""
