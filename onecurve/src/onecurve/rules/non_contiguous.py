"""gloo may leave wrong values in such a tensor without an error
([pytorch#192920](https://github.com/pytorch/pytorch/issues/192920)).
"""

# Logged by watch/collectives.py.
LEVEL = "LOOK"
MESSAGE = "{name} is called with a non-contiguous tensor"
FIX = "call .contiguous() on it first"
