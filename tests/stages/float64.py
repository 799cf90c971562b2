"""Run a script in float64: `python tests/stages/float64.py SCRIPT [FLAG ...]`."""

import runpy
import sys

import torch

torch.set_default_dtype(torch.float64)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
