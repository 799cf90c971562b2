"""Check the sum of a real all_reduce; `make doctor` starts this with torchrun."""

import os

import torch
import torch.distributed as dist

from tools.run.gpus import count_gpus

gpus = count_gpus()
if gpus:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % gpus)
backend = "nccl" if gpus >= int(os.environ["WORLD_SIZE"]) else "gloo"
dist.init_process_group(backend)
value = torch.ones(1000, device="cuda" if gpus else "cpu") * (dist.get_rank() + 1)
dist.all_reduce(value)
expected = sum(range(1, dist.get_world_size() + 1))
wrong = value[value != expected]
if len(wrong):
    raise ArithmeticError(f"{backend} gave {wrong[0].item()} instead of {expected}")
if dist.get_rank() == 0:
    print(f"{backend}, {dist.get_world_size()} processes: all_reduce is correct")
dist.destroy_process_group()
