import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard

dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (2,))
part = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0, 5.0])][dist.get_rank()]
whole = {"shape": torch.Size([5]), "stride": (1,)}
tensor = DTensor.from_local(part, mesh, [Shard(0)], run_check=True, **whole)
got = tensor.full_tensor()
if dist.get_rank() == 0:
    print("1, 2, 3, 4, 5:", got.tolist())
dist.barrier()
dist.destroy_process_group()
