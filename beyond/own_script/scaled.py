"""Clip scaled gradients, with and without unscale_, on two ranks in float16."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
inputs, targets = torch.randn(2, 8, 1, generator=torch.Generator().manual_seed(rank))
for unscales in True, False:
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    ddp_model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024)  # on GPUs "cuda"
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.mse_loss(ddp_model(inputs), targets)
    scaler.scale(loss).backward()  # DDP averages gradients times 1024
    if unscales:
        scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    before = nn.utils.parameters_to_vector(model.parameters()).detach()
    scaler.step(optimizer)  # unscales unless unscale_ has; skips a step with infinities
    scaler.update()
    step = (nn.utils.parameters_to_vector(model.parameters()) - before).norm()
    if rank == 0:
        print(f"unscale_ {unscales!s:5}  norm {norm:12.4f}  step {step:.7f}")
dist.barrier()
dist.destroy_process_group()
