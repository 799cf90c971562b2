import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

dist.init_process_group("gloo")
folders = [tempfile.mkdtemp()]
dist.broadcast_object_list(folders)
dcp.save({"average": torch.tensor([1.001])}, checkpoint_id=folders[0])
loaded = {"average": torch.zeros(1, dtype=torch.bfloat16)}
dcp.load(loaded, checkpoint_id=folders[0])
if dist.get_rank() == 0:
    print("1.001:", loaded["average"].item())
dist.barrier()
dist.destroy_process_group()
