"""What the Makefile calls. Nothing in here is needed to read or run a stage."""
