"""A codec of sound: an autoencoder with a codebook that follows its encodings.

    torchrun --nproc-per-node 2 train.py

The codebook is not trained by gradients: a code is the running mean of the encodings
that it is nearest to, and one that is hardly used starts anew at some encoding.
"""

import dataclasses
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint import state_dict as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


@dataclasses.dataclass
class Config:
    steps: int = 36
    batch: int = 32  # crops, of all ranks; their number divides it
    crop: int = 128
    latent: int = 6
    codes: int = 24
    decay: float = 0.8
    revive_every: int = 4
    revive_below: float = 2.0
    lr: float = 4e-3
    seed: int = 0


def record(seconds, seed):
    """Tones that come and go, and rise slowly; 1000 samples are a second."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(1000 * seconds, dtype=torch.float64) / 1000
    sound = torch.zeros_like(t)
    for tone in range(4):
        speed, phase = torch.rand(2, generator=g, dtype=torch.float64)
        loud = torch.sin((0.3 + 0.5 * speed) * t + 6.3 * phase).clamp(min=0)
        pitch = (tone + 1) * (30 * t + 0.4 * t**2)
        sound += loud * torch.sin(2 * math.pi * pitch) / (tone + 1)
    sound += 0.02 * torch.randn(len(t), generator=g, dtype=torch.float64)
    return sound.to(torch.get_default_dtype())


class Codebook(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.register_buffer("codes", torch.randn(config.codes, config.latent))
        self.register_buffer("counts", torch.ones(config.codes))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, z):
        flat = z.transpose(1, 2).flatten(0, 1)
        index = torch.cdist(flat, self.codes).argmin(1)
        quantized = self.codes[index].unflatten(0, (len(z), -1)).transpose(1, 2)
        if self.training:
            self.follow(flat.detach(), index)
        return quantized, index

    @torch.no_grad()
    def follow(self, flat, index):
        chosen = F.one_hot(index, len(self.codes)).to(flat.dtype)
        n, total = chosen.sum(0), chosen.T @ flat
        dist.all_reduce(n)
        dist.all_reduce(total)
        self.counts.lerp_(n, 1 - self.config.decay)
        self.sums.lerp_(total, 1 - self.config.decay)
        self.codes.copy_(self.sums / self.counts.clamp(min=1e-3)[:, None])

    @torch.no_grad()
    def revive(self, z, generator):
        """Start the codes that are hardly used at encodings of this step."""
        flat = z.detach().transpose(1, 2).flatten(0, 1)
        parts = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, flat)
        flat = torch.cat(parts)
        picks = torch.randint(len(flat), (len(self.codes),), generator=generator)
        dead = self.counts < self.config.revive_below
        self.codes[dead] = flat[picks[dead]]
        self.counts[dead] = self.config.revive_below
        self.sums[dead] = self.codes[dead] * self.config.revive_below
        return int(dead.sum())


class Codec(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, 24, 8, stride=4, padding=2),
            nn.ELU(),
            nn.Conv1d(24, config.latent, 4, stride=2, padding=1),
        )
        self.codebook = Codebook(config)
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(config.latent, 24, 4, stride=2, padding=1),
            nn.ELU(),
            nn.ConvTranspose1d(24, 1, 8, stride=4, padding=2),
        )

    def forward(self, x):
        z = self.encoder(x)
        quantized, index = self.codebook(z)
        through = z + (quantized - z).detach()
        return self.decoder(through), z, quantized, index


class Trainer:
    def __init__(self, config):
        self.config = config
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.train_sound = record(24, seed=1)
        self.test_sound = record(9, seed=2)
        torch.manual_seed(config.seed)
        self.codec = Codec(config)
        mesh = init_device_mesh("cpu", (self.world,))
        for part in (self.codec.encoder, self.codec.decoder):
            fully_shard(part, mesh=mesh)
        fully_shard(self.codec, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.codec.parameters(), lr=config.lr)
        self.revived = 0
        self.crop_rng = torch.Generator().manual_seed(config.seed + 1)
        self.code_rng = torch.Generator().manual_seed(config.seed + 2)

    def crops(self):
        """Return this rank's part of a new batch."""
        size, end = self.config.crop, len(self.train_sound) - self.config.crop
        starts = torch.randint(end, (self.config.batch,), generator=self.crop_rng)
        starts = starts.tensor_split(self.world)[self.rank]
        return torch.stack([self.train_sound[s : s + size] for s in starts])[:, None]

    def variance(self, x):
        sums = torch.stack([torch.ones_like(x), x, x * x]).sum((1, 2, 3)).double()
        dist.all_reduce(sums)
        mean, square = sums[1:] / sums[0]
        return (square - mean * mean).to(x.dtype)

    def step(self, number):
        x = self.crops()
        self.codec.train()
        y, z, quantized, _ = self.codec(x)
        error = F.mse_loss(y, x) / self.variance(x)
        loss = error + 0.25 * F.mse_loss(z, quantized.detach())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.codec.parameters(), 1.0)
        self.optimizer.step()
        if number % self.config.revive_every == 0:
            self.revived += self.codec.codebook.revive(z, self.code_rng)

    @torch.no_grad()
    def evaluate(self):
        """Signal to noise in dB, and how many codes are used as if all were alike."""
        self.codec.eval()
        size = self.config.crop
        pieces = self.test_sound.unfold(0, size, size)[:, None]
        mine = pieces.tensor_split(self.world)[self.rank]
        y, _, _, index = self.codec(mine)
        powers = torch.stack([mine.square().sum(), (y - mine).square().sum()])
        used = torch.bincount(index, minlength=self.config.codes).double()
        dist.all_reduce(powers)
        dist.all_reduce(used)
        perplexity = torch.special.entr(used / used.sum()).sum().exp()
        return 10 * math.log10(powers[0] / powers[1]), perplexity.item()

    def save(self, name):
        options = dcp.StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = dcp.get_model_state_dict(self.codec, options=options)
        if self.rank == 0:
            torch.save({"codec": state, "config": vars(self.config)}, name)

    def run(self):
        for number in range(1, self.config.steps + 1):
            self.step(number)
            if number % 12 == 0:
                ratio, perplexity = self.evaluate()
                if self.rank == 0:
                    numbers = f"snr {ratio:.3f} dB  perplexity {perplexity:.3f}"
                    print(f"step {number}  {numbers}  revived {self.revived}")
        self.save("codec.pt")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(Config()).run()
    dist.destroy_process_group()
