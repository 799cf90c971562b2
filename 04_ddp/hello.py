import torch
import torch.distributed as dist

dist.init_process_group("gloo")  # blocks until every rank has joined
print(f"hello, I am rank {dist.get_rank()} of {dist.get_world_size()}")
number = torch.tensor(1.0 + dist.get_rank())  # 1 on rank 0, 2 on rank 1
dist.all_reduce(number)  # adds up over all ranks
print(f"rank {dist.get_rank()}: the sum is {number}")
dist.destroy_process_group()
