"""A variational autoencoder of small pictures; the KL term is warmed up.

    torchrun --nproc-per-node 2 train.py

--batch-size is over all processes. The noise of the latents differs by process.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SIDE, LATENT = 10, 8


def make_pictures(n, seed):
    """Bars across and down, each there or not, with some pixels flipped."""
    g = torch.Generator().manual_seed(seed)
    across = torch.rand(n, SIDE // 2, 1, generator=g) < 0.3
    down = torch.rand(n, 1, SIDE // 2, generator=g) < 0.3
    bars = (across | down).repeat_interleave(2, 1).repeat_interleave(2, 2)
    wrong = torch.rand(n, SIDE, SIDE, generator=g) < 0.02
    return (bars ^ wrong).flatten(1).to(torch.get_default_dtype())


class VAE(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        pixels = SIDE * SIDE
        self.encoder = nn.Sequential(nn.Linear(pixels, hidden), nn.Tanh())
        self.to_latent = nn.Linear(hidden, 2 * LATENT)
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, hidden), nn.Tanh(), nn.Linear(hidden, pixels)
        )

    def forward(self, x):
        mu, logvar = self.to_latent(self.encoder(x)).chunk(2, dim=1)
        z = mu
        if self.training:
            z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.decoder(z), mu, logvar


def elbo_terms(logits, x, mu, logvar):
    """Reconstruction and KL, added up over the batch."""
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    kl = 0.5 * (mu.square() + logvar.exp() - 1 - logvar).sum()
    return rec, kl


def beta_at(seen, warmup):
    return min(1.0, seen / warmup)


def train_epoch(model, loader, optimizer, args, seen):
    rank, world = dist.get_rank(), dist.get_world_size()
    model.train()
    totals = torch.zeros(3)
    for step, (x,) in enumerate(loader, 1):
        beta = beta_at(seen, args.warmup)
        logits, mu, logvar = model(x)
        rec, kl = elbo_terms(logits, x, mu, logvar)
        loss = (rec + beta * kl) / len(x)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 3.0)
        optimizer.step()
        seen += len(x) * world  # pictures, on all processes
        totals += torch.stack([rec.detach(), kl.detach(), torch.tensor(len(x))])
        if step % args.log_every == 0:
            sofar = totals.clone()
            dist.all_reduce(sofar)
            if rank == 0:
                rec, kl = (sofar[:2] / sofar[2]).tolist()
                print(f"  step {step}  beta {beta:.2f}  rec {rec:.3f}  kl {kl:.3f}")
    return seen


@torch.no_grad()
def evaluate(vae, pictures):
    """Reconstruction and KL per picture, and how many latents vary with it."""
    vae.eval()
    mine = pictures[dist.get_rank() :: dist.get_world_size()]
    sums = torch.zeros(3, dtype=torch.float64)
    moments = torch.zeros(2, LATENT, dtype=torch.float64)
    for x in mine.split(50):
        logits, mu, logvar = vae(x)
        rec, kl = elbo_terms(logits, x, mu, logvar)
        sums += torch.stack([rec, kl, torch.tensor(len(x))])
        moments += torch.stack([mu.sum(0), mu.square().sum(0)])
    dist.all_reduce(sums)
    dist.all_reduce(moments)
    mean, square = moments / sums[2]
    active = (square - mean.square() > 0.05).sum().item()
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item(), active


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--warmup", type=int, default=6000, help="pictures")
    parser.add_argument("--log-every", type=int, default=8)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    train = TensorDataset(make_pictures(1536, 1))
    test = make_pictures(301, 2)
    sampler = DistributedSampler(train, seed=args.seed)
    loader = DataLoader(train, args.batch_size // world, sampler=sampler)
    torch.manual_seed(args.seed)
    model = DDP(VAE())
    torch.manual_seed(1000 + args.seed + rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    seen = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        seen = train_epoch(model, loader, optimizer, args, seen)
        rec, kl, active = evaluate(model.module, test)
        if rank == 0:
            print(f"epoch {epoch}  test rec {rec:.3f}  kl {kl:.3f}  active {active}")
    if rank == 0:
        torch.save(model.module.state_dict(), "vae.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
