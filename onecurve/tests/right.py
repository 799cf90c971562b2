"""A correct script with all that onecurve checks; rules/*.diff contain its edits."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

OUT = Path(__file__).with_name("model.pt")


class Rows(Dataset):
    """Returns 4 numbers with noise, and their sum without."""

    def __init__(self, count, noise):
        self.rows = torch.randn(count, 4)
        self.noise = noise

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        if self.noise:
            row = row + self.noise * torch.randn(4)
        return row, self.rows[index].sum(dim=0, keepdim=True)


def forward(inputs):
    return ddp_model(inputs)


def train_epoch():
    model.train()
    totals = torch.zeros(2)
    for inputs, targets in loader:
        loss = nn.functional.mse_loss(forward(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0:
            print(f"step of {len(inputs)} rows")
        totals += torch.tensor([loss.item() * len(inputs), len(inputs)])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


@torch.no_grad()
def evaluate():
    model.eval()
    for buffer in model.buffers():
        dist.broadcast(buffer, 0)
    total = torch.zeros(())
    for inputs, targets in DataLoader(shard, 8):
        total += (model(inputs) - targets).square().sum()
    dist.all_reduce(total)
    return (total / len(test)).item()


dist.init_process_group("gloo")
rank = dist.get_rank()
world_size = dist.get_world_size()
torch.manual_seed(0)
train = Rows(96, noise=0.1)
test = Rows(41, noise=0)
shard = Subset(test, range(rank, len(test), world_size))
share = len(shard)
sampler = DistributedSampler(train)
loader = DataLoader(train, 8, sampler=sampler)
layers = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1)
model = nn.Sequential(*layers)
ddp_model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
torch.manual_seed(1 + rank)
for epoch in range(3):
    sampler.set_epoch(epoch)
    loss = train_epoch()
    scheduler.step(loss)
    error = evaluate()
    if rank == 0:
        print(f"loss {loss:.4f}  error {error:.4f}")
        torch.save(model.state_dict(), OUT)
dist.destroy_process_group()
