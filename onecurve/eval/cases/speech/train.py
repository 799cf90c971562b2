"""Speech to letters: a bidirectional GRU with CTC, SpecAugment and buckets of lengths.

    torchrun --nproc-per-node 2 train.py

A batch is cut among the processes. With --masks 0 the loss and the error rates are
those of `--nproc-per-node 1`; with masks each process draws its own.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

LETTERS, MELS = 8, 12  # letter 0 is CTC's blank


class Utterances(Dataset):
    """Each letter sounds for some frames, and noise lies on it."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        voice = torch.Generator().manual_seed(0)
        sounds = torch.randn(LETTERS, MELS, generator=voice)
        self.items = []
        for _ in range(n):
            size = int(torch.randint(2, 7, (1,), generator=g))
            text = torch.randint(1, LETTERS, (size,), generator=g)
            frames = torch.randint(3, 7, (size,), generator=g)
            audio = sounds[text].repeat_interleave(frames, dim=0)
            noise = torch.randn(audio.shape, generator=g)
            self.items.append((audio + 0.7 * noise, text))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class BucketSampler(Sampler):
    """Batches of like lengths, up to `max_frames`; each rank gets a part of each."""

    def __init__(self, data, max_frames, seed=0):
        self.seed, self.epoch = seed, 0
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.batches = [[]]
        for i in sorted(range(len(data)), key=lambda i: len(data[i][0])):
            if (len(self.batches[-1]) + 1) * len(data[i][0]) > max_frames:
                self.batches.append([])
            self.batches[-1].append(i)
        if len(self.batches[-1]) < self.world:
            self.batches[-2].extend(self.batches.pop())

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        for b in torch.randperm(len(self.batches), generator=g).tolist():
            yield self.batches[b][self.rank :: self.world]


def collate(items):
    audio, text = zip(*items, strict=True)
    n_audio = torch.tensor([len(a) for a in audio])
    n_text = torch.tensor([len(t) for t in text])
    return pad_sequence(audio, batch_first=True), n_audio, torch.cat(text), n_text


class Recognizer(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.gru = nn.GRU(MELS, dim, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * dim, LETTERS)

    def forward(self, audio, lengths):
        packed = pack_padded_sequence(audio, lengths, True, enforce_sorted=False)
        hidden, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        return self.out(hidden).log_softmax(-1)


def spec_augment(audio, lengths, masks):
    audio = audio.clone()
    for one, length in zip(audio, lengths.tolist(), strict=True):
        for _ in range(masks):
            t = int(torch.randint(length, (1,)))
            one[t : t + 2] = 0
            m = int(torch.randint(MELS, (1,)))
            one[:, m : m + 2] = 0
    return audio


def edits(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


@torch.no_grad()
def error_rate(net, data):
    net.eval()
    rank, world = dist.get_rank(), dist.get_world_size()
    wrong, total = torch.zeros(1), torch.zeros(1)
    for i in range(rank, len(data), world):
        audio, text = data[i]
        best = net(audio[None], torch.tensor([len(audio)]))[0].argmax(-1)
        said = [x for x in best.unique_consecutive().tolist() if x]
        wrong += edits(said, text.tolist())
        total += len(text)
    dist.all_reduce(wrong)
    dist.all_reduce(total)
    return (wrong / total).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--masks", type=int, default=1)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    train, dev, test = Utterances(301, 1), Utterances(61, 2), Utterances(61, 3)
    sampler = BucketSampler(train, max_frames=360)
    loader = DataLoader(train, batch_sampler=sampler, collate_fn=collate)
    torch.manual_seed(7)
    model = DDP(Recognizer())
    torch.manual_seed(7 + rank)  # for the masks
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    steps = args.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, steps)

    best = float("inf")
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        total = torch.zeros(2)
        for audio, n_audio, text, n_text in loader:
            audio = spec_augment(audio, n_audio, args.masks)
            out = model(audio, n_audio).transpose(0, 1)
            loss = F.ctc_loss(out, text, n_audio, n_text, reduction="sum")
            letters = n_text.sum()
            dist.all_reduce(letters)
            optimizer.zero_grad()
            (loss * world / letters).backward()  # DDP divides by world
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            total += torch.stack([loss.detach(), n_text.sum()])
        dist.all_reduce(total)
        rate = error_rate(model.module, dev)
        if rank == 0:
            print(f"{epoch}: loss {total[0] / total[1]:.5f}, dev errors {rate:.4f}")
        if rate < best:
            best = rate
            if rank == 0:
                torch.save(model.module.state_dict(), "best.pt")
    dist.barrier()
    model.module.load_state_dict(torch.load("best.pt"))
    rate = error_rate(model.module, test)
    if rank == 0:
        print(f"test errors {rate:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
