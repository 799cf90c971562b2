import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (2,))
logs = torch.tensor([[-1.0, -3.0], [-1.0, -3.0]])
targets, weight = torch.tensor([0, 1]), torch.tensor([1.0, 9.0])
right = torch.nn.functional.nll_loss(logs, targets, weight)
logs = distribute_tensor(logs, mesh, [Shard(0)])
targets, weight = [
    distribute_tensor(one, mesh, [Replicate()]) for one in (targets, weight)
]
got = torch.nn.functional.nll_loss(logs, targets, weight).full_tensor()
if dist.get_rank() == 0:
    print(f"{right.item():g}:", got.item())
dist.barrier()
dist.destroy_process_group()
