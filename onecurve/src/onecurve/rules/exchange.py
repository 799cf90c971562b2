"""The ranks' weights drift apart, but each one's loss may fall. The details name the
parameters and, if known, the cause: no wrapper, a call that bypasses it, `no_sync()` in
the last backward pass, or a layer that was frozen or absent when it was wrapped.
"""

# Made by compare/exchange.py and compare/per_rank.py.
LEVEL = "ERROR"
MESSAGE = "gradients are not averaged across ranks"
FIX = "wrap every trained parameter, and sync gradients in a step's last backward()"
FOLLOWS = ("gradient", "weights", "clip", "evaluated_weights", "buffers")
ONCE = True
LAST = "no_sync() or set_requires_gradient_sync(False) for all but the last backward()"
