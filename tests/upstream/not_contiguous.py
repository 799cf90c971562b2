import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
for name in "all_reduce", "broadcast", "reduce":
    pairs = torch.tensor([[1.0, 9.0], [2.0, 9.0]]) * 10**rank
    column = pairs[:, 0]  # 1, 2 on rank 0; 10, 20 on rank 1
    getattr(dist, name)(column, *([] if name == "all_reduce" else [0]))
    ranks = [None, None]
    dist.all_gather_object(ranks, column.tolist())
    if rank == 0:
        print(name, "of 1, 2 and 10, 20:", *ranks)
dist.destroy_process_group()
