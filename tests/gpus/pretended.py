"""A plugin: `pytest -p gpus.pretended` believes in two GPUs where none are hidden."""

import os

import torch

torch.cuda.is_available = lambda: os.environ.get("CUDA_VISIBLE_DEVICES") != ""
torch.cuda.device_count = lambda: 2 * torch.cuda.is_available()
