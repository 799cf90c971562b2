import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
world_size = dist.get_world_size()

labels = torch.tensor([7, 2, 1, 0, 4, 1, 4, 9, 5, 9])  # of ten test images
mine = torch.arange(rank, len(labels), world_size)  # this rank's shard: indices
predictions = labels[mine]  # as a perfect model would predict them

gathered = [None] * world_size
dist.all_gather_object(gathered, predictions)

in_order = torch.zeros(len(labels), dtype=predictions.dtype)
in_order[mine] = predictions
dist.all_reduce(in_order)

if rank == 0:
    for sender, part in enumerate(gathered):
        print(f"from rank {sender}: {part.tolist()}")
    print(f"one after the other: {torch.cat(gathered).tolist()}")
    print(f"each in its place:   {in_order.tolist()}")
dist.destroy_process_group()
