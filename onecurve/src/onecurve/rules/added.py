"""A sum is right only if each loss is divided by the count of all ranks."""

from onecurve.evidence.origins import LOSS

# Made by compare/exchange.py and compare/per_rank.py.
LEVEL = "LOOK"
MESSAGE = "gradients are summed across ranks, not averaged: {ranks} times the mean"
FIX = "divide them by the world size, unless each loss is divided by all ranks' count"
ORIGIN = LOSS
