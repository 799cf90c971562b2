"""`pytest -p gpus.fake_gpus` sees two GPUs, unless CUDA_VISIBLE_DEVICES is empty."""

import os

import torch

torch.cuda.is_available = lambda: os.environ.get("CUDA_VISIBLE_DEVICES") != ""
torch.cuda.device_count = lambda: 2 * torch.cuda.is_available()
