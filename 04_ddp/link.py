"""Time all_reduce for several sizes, to measure the link between the ranks."""

import os
import time

import torch
import torch.distributed as dist

device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if device == "cuda" else "gloo")
world_size = dist.get_world_size()
for megabytes in 1, 4, 16, 64:
    numbers = torch.zeros(megabytes * 250_000, device=device)
    dist.all_reduce(numbers)  # the first call also connects
    numbers[0].item()  # waits for the GPU
    start = time.perf_counter()
    for _ in range(5):
        dist.all_reduce(numbers)
    numbers[0].item()
    seconds = (time.perf_counter() - start) / 5
    sent = 2 * (world_size - 1) / world_size * megabytes / 1000  # GB by each rank
    if dist.get_rank() == 0:
        print(f"{megabytes:2} MB  {sent / seconds:6.2f} GB/s  {seconds:.4f} s")
dist.barrier()
dist.destroy_process_group()
