"""The other rank never calls it or has exited."""

# Made by compare/run.py.
LEVEL = "ERROR"
MESSAGE = "hang: a rank is waiting in a collective that another rank never calls"
FIX = "make every rank run the same collectives in the same order"
