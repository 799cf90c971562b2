import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

dist.init_process_group("gloo")
rank = dist.get_rank()
layer = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.ones_(layer.weight)
stage = PipelineStage(layer, rank, 2, torch.device("cpu"))
schedule = ScheduleGPipe(stage, 2, loss_fn=lambda output, target: output.mean())
for step in 1, 2:
    if rank == 0:
        schedule.step(torch.ones(2, 1))
    else:
        schedule.step(target=torch.ones(2, 1))
    if rank == 0:
        print(f"{step} accumulated, gradient", layer.weight.grad.item())
dist.barrier()
dist.destroy_process_group()
