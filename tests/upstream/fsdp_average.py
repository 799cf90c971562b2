import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
layer = torch.nn.Linear(2, 1, bias=False)
fully_shard(layer, mesh=dist.init_device_mesh("cpu", (2,)))
layer(torch.full((1, 2), 1.0 + 2 * dist.get_rank())).sum().backward()
got = layer.weight.grad.full_tensor()
if dist.get_rank() == 0:
    print("mean of 1 and 3:", got[0, 0].item())
dist.barrier()
dist.destroy_process_group()
