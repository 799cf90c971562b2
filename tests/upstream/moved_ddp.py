import torch
import torch.distributed as dist

dist.init_process_group("gloo")
layer = torch.nn.Linear(1, 1, bias=False)
model = torch.nn.parallel.DistributedDataParallel(layer)
inputs = torch.tensor([[1.0 + 2 * dist.get_rank()]])
for dtype in torch.float32, torch.float64:
    model.to(dtype).zero_grad()
    model(inputs.to(dtype)).sum().backward()
    if dist.get_rank() == 0:
        print(f"{dtype}, mean of 1 and 3:", layer.weight.grad.item())
dist.barrier()
dist.destroy_process_group()
