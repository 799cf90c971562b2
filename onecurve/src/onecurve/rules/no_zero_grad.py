"""`zero_grad()` is missing. Each step adds its gradients to all earlier ones."""

# Made by compare/exchange.py.
LEVEL = "LOOK"
MESSAGE = "gradients accumulate from step to step"
FIX = "call optimizer.zero_grad() in every step"
