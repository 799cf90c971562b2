"""Add up numbers over 2, 4 and 8 ranks in bfloat16; print how far the sums are off."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
gradient = torch.randn(100_000)
for count in 2, 4, 8:
    group = dist.new_group(range(count))  # called by all ranks
    if rank >= count:
        continue
    exact = gradient.double()
    once = gradient.bfloat16().float()  # rounded, then added up in float32
    always = gradient.bfloat16()  # every addition rounds
    for numbers in exact, once, always:
        dist.all_reduce(numbers, group=group)
    if rank == 0:
        errors = [(one - exact).norm() / exact.norm() for one in (once, always)]
        once, always = (f"{error.item():.2%}" for error in errors)
        print(f"{count} ranks: sent in bfloat16 {once}, also added in it {always}")
dist.barrier()
dist.destroy_process_group()
