"""Your script raised this error on that rank."""

# Made by compare/run.py.
LEVEL = "ERROR"
MESSAGE = "rank {rank} failed: {error}"
