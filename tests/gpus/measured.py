"""Run a stage: `python tests/gpus/measured.py OUT float64 STAGE FLAG...`.

Writes a JSON list of the GPUs on which rank R allocated memory to OUT/usedR.
"""

import json
import os
import runpy
import sys

import torch

_, out, dtype, *sys.argv = sys.argv
torch.set_default_dtype(getattr(torch, dtype))
runpy.run_path(sys.argv[0], run_name="__main__")
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
used = [index for index in range(count) if torch.cuda.max_memory_allocated(index)]
with open(f"{out}/used{os.environ.get('RANK', '0')}", "w") as file:
    json.dump(used, file)
