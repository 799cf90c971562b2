"""Text line recognition: a CRNN trained with CTC, by `torchrun train.py`.

The second phase resumes from the first one's checkpoint, with augmentation.
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn import functional as dist_fn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.optim.lr_scheduler import OneCycleLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset, Sampler, Subset

SEED = 7
OUT = Path(os.environ.get("OUT", "ocr_run"))
ALPHABET, HEIGHT = 10, 12  # class 0 is CTC's blank
GLOBAL_BATCH, EPOCHS, FIRST_PHASE = 24, 7, 3
MAX_LR, CLIP = 1.2e-2, 2.0


class Lines(Dataset):
    """Rendered lines of 3 to 8 glyphs, each glyph 5 to 9 columns wide."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(1234)
        font = torch.rand(ALPHABET, 1, HEIGHT, 4, generator=g).gt(0.55).float()
        g.manual_seed(seed)
        self.images, self.texts, self.augment = [], [], 0.0
        for _ in range(count):
            length = int(torch.randint(3, 9, (), generator=g))
            text = torch.randint(1, ALPHABET + 1, (length,), generator=g)
            widths = torch.randint(5, 10, (length,), generator=g).tolist()
            glyphs = zip(font[text - 1], widths)
            glyphs = [F.interpolate(f[None], (HEIGHT, w))[0, 0] for f, w in glyphs]
            image = F.pad(torch.cat(glyphs, 1), (1, 1))
            image = image + 0.45 * torch.randn(image.shape, generator=g)
            self.images.append(image)
            self.texts.append(text)

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        image = self.images[i]
        if self.augment:
            image = image.roll(int(torch.randint(-1, 2, ())), 0)
            image = image + self.augment * torch.randn(image.shape)
        return image, self.texts[i]


def collate(items):
    """Pad the images to the widest of them, and put the texts end to end."""
    images, texts = zip(*items)
    widths = torch.tensor([image.shape[1] for image in images])
    lengths = torch.tensor([len(text) for text in texts])
    batch = torch.zeros(len(images), 1, HEIGHT, int(widths.max()))
    for row, image in zip(batch, images):
        row[0, :, : image.shape[1]] = image
    return batch, widths, torch.cat(texts), lengths


class WidthBatches(Sampler):
    """Global batches of lines of similar width, of which each rank takes its share."""

    def __init__(self, widths, rank, world):
        self.widths, self.rank, self.world = torch.tensor(widths), rank, world
        self.epoch = 0

    def __len__(self):
        return -(-len(self.widths) // GLOBAL_BATCH)

    def __iter__(self):
        g = torch.Generator().manual_seed(SEED + self.epoch)
        order = torch.randperm(len(self.widths), generator=g)
        pools = order.split(GLOBAL_BATCH * 8)
        pools = [pool[self.widths[pool].argsort(stable=True)] for pool in pools]
        batches = torch.cat(pools).split(GLOBAL_BATCH)
        for b in torch.randperm(len(batches), generator=g).tolist():
            yield batches[b][self.rank :: self.world].tolist()


class LineNorm(nn.BatchNorm2d):
    """Batch norm by the real columns, not the padding, of the batches of all ranks."""

    def forward(self, x, mask):
        x = x.float()
        if not self.training:
            return super().forward(x) * mask
        real = x * mask
        count = mask.sum().view(1) * x.shape[2]
        stats = torch.cat([real.sum((0, 2, 3)), (real * x).sum((0, 2, 3)), count])
        stats = dist_fn.all_reduce(stats)
        mean, square = (stats[:-1] / stats[-1]).chunk(2)
        var = square - mean**2
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var, self.momentum)
        scale = self.weight * (var + self.eps).rsqrt()
        shift = self.bias - mean * scale
        return (x * scale[:, None, None] + shift[:, None, None]) * mask


class CRNN(nn.Module):
    def __init__(self, channels=(12, 24, 32), hidden=40):
        super().__init__()
        pairs = zip((1, *channels), channels)
        convs = [nn.Conv2d(i, o, 3, padding=1, bias=False) for i, o in pairs]
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(LineNorm(c) for c in channels)
        self.rnn = nn.GRU(channels[-1] * HEIGHT // 4, hidden, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(2 * hidden, ALPHABET + 1)

    def forward(self, x, widths):
        for layer, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            columns = torch.arange(x.shape[3], device=x.device)
            mask = (columns < widths[:, None].to(x.device)).float()[:, None, None]
            x = F.relu(norm(conv(x), mask))
            if layer < 2:  # halve the height twice, and the width once
                x = F.max_pool2d(x, (2, 2 - layer), ceil_mode=True)
                widths = (widths + 1 - layer) // (2 - layer)
        x = x.flatten(1, 2).permute(2, 0, 1)  # columns, lines, features
        with torch.autocast(x.device.type, enabled=False):
            packed = pack_padded_sequence(x.float(), widths, enforce_sorted=False)
            x, _ = pad_packed_sequence(self.rnn(packed)[0])
        return self.head(self.drop(x)).float().log_softmax(2), widths


def edits(a, b):
    """Levenshtein distance of two lists."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


class Trainer:
    def __init__(self, rank, world, device):
        self.rank, self.world, self.device = rank, world, device
        self.train_set, self.val_set = Lines(490, SEED), Lines(151, SEED + 1)
        widths = [image.shape[1] for image in self.train_set.images]
        self.sampler = WidthBatches(widths, rank, world)
        kwargs = {"collate_fn": collate}
        self.loader = DataLoader(self.train_set, batch_sampler=self.sampler, **kwargs)
        mine = Subset(self.val_set, range(rank, len(self.val_set), world))
        self.val_loader = DataLoader(mine, batch_size=32, **kwargs)
        torch.manual_seed(SEED)
        self.net = CRNN().to(device)
        self.model = DDP(self.net, forward_sync_buffers=False)  # LineNorm does
        ema = get_ema_multi_avg_fn(0.95)
        self.average = AveragedModel(self.net, multi_avg_fn=ema, use_buffers=True)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), weight_decay=0.01)
        steps = EPOCHS * len(self.sampler)
        self.scheduler = OneCycleLR(self.optimizer, MAX_LR, total_steps=steps)
        self.epoch, self.best = 0, 1e9

    def parts(self):
        names = "net", "average", "optimizer", "scheduler"
        return {name: getattr(self, name) for name in names}

    def save(self, name):
        if self.rank == 0:
            state = {key: part.state_dict() for key, part in self.parts().items()}
            state |= {"epoch": self.epoch, "best": self.best}
            torch.save(state, OUT / name)

    def load(self, name):
        dist.barrier()  # rank 0 has written it
        state = torch.load(OUT / name, map_location=self.device)
        for key, part in self.parts().items():
            part.load_state_dict(state[key])
        self.epoch, self.best = state["epoch"], state["best"]

    def nll(self, model, images, widths, texts, lengths):
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logs, frames = model(images.to(self.device), widths)
        loss = F.ctc_loss(logs, texts.to(logs.device), frames, lengths, reduction="sum")
        return loss, logs.argmax(2).T, frames

    def train_epoch(self):
        self.model.train()
        self.sampler.epoch = self.epoch
        torch.manual_seed(SEED + 1000 * self.epoch + self.rank)  # noise and dropout
        totals = torch.zeros(2, device=self.device)
        for batch in self.loader:
            chars = batch[3].sum().float().to(self.device)
            dist.all_reduce(chars)
            loss = self.nll(self.model, *batch)[0]
            self.optimizer.zero_grad()
            (loss * self.world / chars).backward()  # DDP takes the mean of the ranks
            nn.utils.clip_grad_norm_(self.net.parameters(), CLIP)
            self.optimizer.step()
            self.scheduler.step()
            self.average.update_parameters(self.net)
            totals += torch.stack([loss.detach(), batch[3].sum().to(loss)])
        dist.all_reduce(totals)
        return (totals[0] / totals[1]).item()

    @torch.no_grad()
    def error_rate(self, model):
        """Character error rate in percent over the whole validation set."""
        model.eval()
        totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        for images, widths, texts, lengths in self.val_loader:
            _, best, frames = self.nll(model, images, widths, texts, lengths)
            for path, n, text in zip(best, frames, texts.split(lengths.tolist())):
                read = path[:n].unique_consecutive()
                wrong = edits(read[read > 0].tolist(), text.tolist())
                totals += torch.tensor([wrong, len(text)]).to(totals)
        dist.all_reduce(totals)
        return (100 * totals[0] / totals[1]).item()

    def fit(self, until):
        while self.epoch < until:
            loss = self.train_epoch()
            self.epoch += 1
            cer, averaged = self.error_rate(self.net), self.error_rate(self.average)
            if averaged < self.best:
                self.best = averaged
                self.save("best.pt")
            if self.rank == 0:
                print(f"epoch {self.epoch} nll/char {loss:.4f} cer {cer:.2f}% "
                      f"averaged {averaged:.2f}%", flush=True)
        self.save("last.pt")


def main():
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    OUT.mkdir(parents=True, exist_ok=True)
    Trainer(rank, world, device).fit(FIRST_PHASE)
    trainer = Trainer(rank, world, device)
    trainer.load("last.pt")
    trainer.train_set.augment = 0.25
    trainer.fit(EPOCHS)

    trainer.load("best.pt")
    cer = trainer.error_rate(trainer.average)
    if rank == 0:
        print(f"best epoch {trainer.epoch}: cer {cer:.2f}%")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
