"""Run a script on fake GPUs: `python -m tools.lab.fake two_gpus SCRIPT FLAG...`."""

import os
import runpy
import sys

import torch._dynamo  # noqa: F401, as long as torch.Event is its own
import torchvision  # noqa: F401

from tools.lab import fake_cuda


def main():
    name = sys.argv[1]
    sys.argv = sys.argv[2:]
    sys.path[0] = os.path.dirname(sys.argv[0])  # as if it had been started by itself
    getattr(fake_cuda, name)(lambda *_, **__: None)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
