import torch
import torch.distributed as dist
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import loss_parallel

dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (2,))
logits = distribute_tensor(torch.zeros(1, 4), mesh, [Shard(1)]).requires_grad_()
with loss_parallel():
    logs = torch.log_softmax(logits, dim=1).redistribute(placements=[Replicate()])
    logs.to_local()[0, 0].backward()
got = logits.grad.full_tensor()
if dist.get_rank() == 0:
    print("0.75, -0.25, -0.25, -0.25:", got[0].tolist())
dist.barrier()
dist.destroy_process_group()
