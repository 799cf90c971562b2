# A GAN on points around a circle, in two dimensions.
#
#   python train.py                          one process
#   torchrun --nproc-per-node 2 train.py     the same losses, to rounding
#
# Every process draws the noise of the whole batch from one generator and takes its own
# rows, and each batch has the points that one process would have had.

import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.utils import data

batch_size = 128  # of all processes
nz = 4  # size of the latent vector
ngf = ndf = 48  # width of the two networks
num_epochs = 5
lr = 2e-3
beta1 = 0.5
modes = 8

if "RANK" not in os.environ:
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}
    os.environ.update(alone, MASTER_PORT="0")
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
share = batch_size // world

# ---------------------------------------------------------------- the points
rng = torch.Generator().manual_seed(3)
mode = torch.randint(modes, (2048,), generator=rng)
angle = 2 * math.pi * mode / modes
points = torch.stack([angle.cos(), angle.sin()], 1)
points = points + 0.05 * torch.randn(2048, 2, generator=rng)
dataset = data.TensorDataset(points)
sampler = data.DistributedSampler(dataset, world, rank, drop_last=True)
dataloader = data.DataLoader(dataset, share, sampler=sampler, drop_last=True)

# ---------------------------------------------------------------- the networks
torch.manual_seed(0)
netG = nn.Sequential(
    nn.Linear(nz, ngf),
    nn.LayerNorm(ngf),
    nn.ReLU(),
    nn.Linear(ngf, ngf),
    nn.ReLU(),
    nn.Linear(ngf, 2),
)
netD = nn.Sequential(
    nn.Linear(2, ndf),
    nn.LeakyReLU(0.2),
    nn.Linear(ndf, ndf),
    nn.LeakyReLU(0.2),
    nn.Linear(ndf, 1),
)
ddpG = nn.parallel.DistributedDataParallel(netG)
ddpD = nn.parallel.DistributedDataParallel(netD)
optimizerG = optim.Adam(netG.parameters(), lr=lr, betas=(beta1, 0.999))
optimizerD = optim.Adam(netD.parameters(), lr=lr, betas=(beta1, 0.999))
noise_rng = torch.Generator().manual_seed(17)


def noise():
    """Return this process's rows of the noise of the batch."""
    z = torch.randn(batch_size, nz, generator=noise_rng)
    return z[rank::world]


def covered(count=512):
    """Return how many of `count` generated points lie near each mode."""
    netG.eval()
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        z = torch.randn(count, nz, generator=rng)[rank::world]
        fake = netG(z)
    netG.train()
    near = fake[fake.norm(dim=1) > 0.5]
    turn = torch.atan2(near[:, 1], near[:, 0]) / (2 * math.pi) * modes
    found = torch.bincount(turn.round().long() % modes, minlength=modes)
    dist.all_reduce(found)
    return found


for epoch in range(num_epochs):
    sampler.set_epoch(epoch)
    sums = torch.zeros(2)
    skipped = 0
    for (real,) in dataloader:
        # (1) the discriminator: softplus(-D(x)) + softplus(D(G(z)))
        fake = ddpG(noise())
        scores = ddpD(torch.cat([real, fake.detach()]))
        on_real, on_fake = scores.chunk(2)
        errD = F.softplus(-on_real).mean() + F.softplus(on_fake).mean()
        optimizerD.zero_grad()
        errD.backward()
        optimizerD.step()

        # (2) the generator: softplus(-D(G(z))), through the bare discriminator
        errG = F.softplus(-netD(fake)).mean()
        optimizerG.zero_grad()
        errG.backward()
        errors = torch.stack([errD.detach(), errG.detach()])
        dist.all_reduce(errors)
        errors /= world
        # a discriminator that cannot tell has nothing to teach
        if errors[0] < 1.38:
            optimizerG.step()
        else:
            skipped += 1
        sums += errors
    lossD, lossG = (sums / len(dataloader)).tolist()
    found = covered()
    if rank == 0:
        print(f"[{epoch}/{num_epochs}] Loss_D: {lossD:.5f} Loss_G: {lossG:.5f}")
        print(f"   G skipped {skipped} steps; points near each mode: {found.tolist()}")

if rank == 0:
    torch.save({"G": netG.state_dict(), "D": netD.state_dict()}, "gan.pt")
dist.destroy_process_group()
