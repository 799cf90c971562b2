"""Run a script on fake GPUs: `python -m tools.lab.fake two_gpus SCRIPT FLAG...`.

With `float64`, or `two_gpus,float64`, it computes in float64.
"""

import os
import runpy
import sys

import torch._dynamo  # here, as long as torch.Event is its own
import torchvision  # noqa: F401

from tools.lab import fake_cuda


def not_logged(kind, **facts):
    """Take the events that a fake writes, in place of the lab's recorder."""


def main():
    names = sys.argv[1].split(",")
    sys.argv = sys.argv[2:]
    sys.path[0] = os.path.dirname(sys.argv[0])  # as if it had been started by itself
    for name in names:
        if name == "float64":
            torch.set_default_dtype(torch.float64)
        else:
            getattr(fake_cuda, name)(not_logged)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
