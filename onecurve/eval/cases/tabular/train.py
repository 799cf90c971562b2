"""Click-through rate: embeddings of categories, clicks are rare and weigh more.

torchrun --nproc-per-node 2 train.py

No wrapper: the ranks add up their gradients by hand. BATCH is over all of them.
"""

import argparse
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

SIZES = {"site": 300, "ad": 200, "device": 12, "hour": 24}
KEPT = {"site": 60, "ad": 50, "device": 8, "hour": 24}
ROWS, VALID_ROWS, BATCH, PATIENCE = 6144, 1801, 1024, 2
L2, CLIP, DIM, SEED = 1e-3, 1.0, 8, 11


def read_log(rows, seed):
    """Stands for a day's impressions in order: raw categories, numbers, clicks."""
    fixed = torch.Generator().manual_seed(5)
    gen = torch.Generator().manual_seed(seed)
    cats, logit = {}, torch.full((rows,), -3.6)
    for name, size in SIZES.items():
        common = torch.randperm(size, generator=fixed)
        effect = torch.randn(size, generator=fixed)
        draw = (torch.rand(rows, generator=gen).pow(3) * size).long()
        cats[name] = common[draw]
        if name == "hour":  # people click more in the evening
            cats[name], effect = cats[name].sort().values, effect.sort().values
        logit += 0.8 * effect[cats[name]]
    nums = torch.randn(rows, 3, generator=gen)
    logit += 0.6 * nums[:, 0] - 0.4 * nums[:, 1] * nums[:, 2]
    clicks = torch.rand(rows, generator=gen) < logit.sigmoid()
    return cats, *(t.to(torch.get_default_dtype()) for t in (nums, clicks))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        tables = {name: nn.Embedding(kept + 1, DIM) for name, kept in KEPT.items()}
        self.tables = nn.ModuleDict(tables)
        self.mlp = nn.Sequential(
            nn.Linear(DIM * len(KEPT) + 3, 32), nn.ReLU(), nn.Linear(32, 1)
        )

    def forward(self, ids, nums):
        parts = [table(ids[:, i]) for i, table in enumerate(self.tables.values())]
        return self.mlp(torch.cat([*parts, nums], 1)).squeeze(1)


def auc(logits, clicks):
    order = logits[clicks == 1][:, None] - logits[clicks == 0]
    return ((order > 0).double().mean() + (order == 0).double().mean() / 2).item()


def calibration_error(p, clicks, bins=8):
    """Mean distance of predicted and observed rate, over bins of as many rows."""
    order = p.argsort()
    pairs = zip(p[order].chunk(bins), clicks[order].chunk(bins), strict=True)
    gaps = [(a.mean() - b.mean()).abs() * len(a) for a, b in pairs]
    return (sum(gaps) / len(p)).item()


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--unknown", type=float, default=0.05, help="part of the ids")
args = parser.parse_args()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

# The most frequent values of each category get an id, the others 0.
cats, nums, clicks = read_log(ROWS, 1)
vocabulary = {}
for name, size in SIZES.items():
    counts = torch.bincount(cats[name][rank::world], minlength=size)
    dist.all_reduce(counts)
    frequent = counts.argsort(descending=True, stable=True)[: KEPT[name]]
    vocabulary[name] = torch.zeros(size, dtype=torch.long)
    vocabulary[name][frequent] = torch.arange(1, KEPT[name] + 1)


def encode(cats):
    return torch.stack([vocabulary[name][cats[name]] for name in KEPT], 1)


ids = encode(cats)
valid_cats, valid_nums, valid_clicks = read_log(VALID_ROWS, 2)
valid_ids = encode(valid_cats)
click_weight = ((1 - clicks).sum() / clicks.sum()).sqrt()
weights = torch.where(clicks == 1, click_weight, 1.0)

torch.manual_seed(SEED)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=args.lr)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0)
noise = torch.Generator().manual_seed(SEED + 1 + rank)
shuffle = torch.Generator().manual_seed(SEED)

best_auc, best_net, waited = 0.0, None, 0
for epoch in range(args.epochs):
    net.train()
    epoch_loss = torch.zeros(2, dtype=torch.float64)
    for batch in torch.randperm(ROWS, generator=shuffle).split(BATCH):
        total_weight = weights[batch].sum()
        mine = batch[rank::world]
        # Some ids become unknown, so that the embedding of 0 is trained.
        known = torch.rand(ids[mine].shape, generator=noise) >= args.unknown
        logits = net(ids[mine] * known, nums[mine])
        loss = F.binary_cross_entropy_with_logits(
            logits, clicks[mine], weights[mine], reduction="sum"
        )
        loss = loss / total_weight
        decay = sum(table.weight.square().sum() for table in net.tables.values())
        optimizer.zero_grad()
        (loss + L2 * decay / world).backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        epoch_loss += torch.stack([loss.detach() * total_weight, weights[mine].sum()])
    dist.all_reduce(epoch_loss)

    # Each rank scores a part of the rows, and gets the scores of the others.
    net.eval()
    with torch.no_grad():
        mine = torch.arange(VALID_ROWS).tensor_split(world)[rank]
        scores = net(valid_ids[mine], valid_nums[mine])
    scores -= click_weight.log()  # the weight has moved the odds by so much
    seen = valid_clicks[mine]
    gathered = [None] * world
    dist.all_gather_object(gathered, (scores, seen))
    all_scores = torch.cat([part[0] for part in gathered])
    all_seen = torch.cat([part[1] for part in gathered])
    valid_loss = F.binary_cross_entropy_with_logits(all_scores, all_seen).item()
    valid_auc = auc(all_scores, all_seen)
    predicted = all_scores.sigmoid()
    ratio = (predicted.mean() / all_seen.mean()).item()
    error = calibration_error(predicted, all_seen)
    if rank == 0:
        lr = optimizer.param_groups[0]["lr"]
        print(f"epoch {epoch}: lr {lr:.4f}, train {epoch_loss[0] / epoch_loss[1]:.5f}")
        print(f"  valid: log loss {valid_loss:.5f}, AUC {valid_auc:.4f}, ", end="")
        print(f"predicted / observed {ratio:.3f}, calibration error {error:.4f}")
    plateau.step(valid_loss)
    waited = 0 if valid_auc > best_auc else waited + 1
    if valid_auc > best_auc:
        best_auc, best_net = valid_auc, copy.deepcopy(net.state_dict())
    if waited == PATIENCE:
        break

if rank == 0:
    print(f"best AUC {best_auc:.4f}")
    torch.save({"net": best_net, "vocabulary": vocabulary}, "clicks.pt")
dist.destroy_process_group()
