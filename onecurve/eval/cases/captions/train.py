"""Train a captioner (CNN, attention, GRU) on pictures of coloured shapes.

    torchrun --nproc-per-node=2 train.py     or, on one process,     python train.py

First the decoder learns alone, then the encoder is tuned along with it, from the best
model of the first stage. Captions are batched by length; the loss is a mean of tokens.
"""

import contextlib
import os
import random
from collections import Counter

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset

PAD, BOS, EOS = 0, 1, 2
COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "white": (1, 1, 1)}
SHAPES = ["square", "bar", "ring"]
WORDS = "<pad> <bos> <eos> a left of".split()
VOCAB = {word: i for i, word in enumerate([*WORDS, *COLOURS, *SHAPES])}
SIZE, MAX_LEN = 24, 14
SEED, BEST = 3, "best.pt"
BATCH, ACCUMULATE = 26, 2  # of all ranks
WARM, TUNE, PATIENCE = 2, 5, 3  # epochs
LR, CLIP, SMOOTHING, DROPOUT = 1e-2, 1.0, 0.1, 0.1
JITTER, OWN = 0.2, 0.25


class ShapesCaptions(Dataset):
    """Pictures of one to three shapes, with a caption each, all drawn from a seed."""

    def __init__(self, count, seed, jitter=0.0):
        rng = random.Random(seed)
        self.jitter = jitter
        pairs = [self.draw(rng) for _ in range(count)]
        self.images = [image for image, _ in pairs]
        self.captions = [[BOS, *(VOCAB[w] for w in text.split()), EOS] for _, text in pairs]

    @staticmethod
    def draw(rng):
        image, parts = torch.full((3, SIZE, SIZE), 0.1), []
        for column in sorted(rng.sample(range(3), rng.choice([1, 2, 3]))):
            colour, shape = rng.choice([*COLOURS]), rng.choice(SHAPES)
            y, mask = rng.randint(4, SIZE - 4), torch.ones(6, 6)
            if shape != "square":
                mask[slice(1, -1) if shape == "ring" else [0, 1, 4, 5], 1:-1] = 0
            box = image[:, y - 3 : y + 3, 8 * column + 1 : 8 * column + 7]
            box.copy_(torch.where(mask > 0, torch.tensor(COLOURS[colour])[:, None, None], box))
            parts.append(f"a {colour} {shape}")
        return image, " left of ".join(parts)

    def __len__(self):
        return len(self.captions)

    def __getitem__(self, i):
        image = self.images[i]
        if self.jitter:  # no flips: they would turn left into right
            gain = 1 + self.jitter * (2 * torch.rand(3, 1, 1) - 1)
            image = image * gain + self.jitter / 4 * torch.randn_like(image)
        return image, torch.tensor(self.captions[i])


def collate(samples):
    images, captions = zip(*samples)
    return torch.stack(images), nn.utils.rnn.pad_sequence(captions, True, PAD)


class BucketBatches:
    """Batches of captions that are about as long, of which each rank takes its part."""

    def __init__(self, lengths, batch, rank, world, seed, pool=6):
        self.lengths, self.batch, self.rank, self.world = lengths, batch, rank, world
        self.seed, self.pool, self.epoch = seed, pool, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return -(-len(self.lengths) // self.batch)

    def __iter__(self):
        rng = random.Random(1000 * self.seed + self.epoch)
        ids = list(range(len(self.lengths)))
        rng.shuffle(ids)
        span, batches = self.pool * self.batch, []
        for start in range(0, len(ids), span):
            bucket = sorted(ids[start : start + span], key=self.lengths.__getitem__)
            batches += [bucket[i : i + self.batch] for i in range(0, len(bucket), self.batch)]
        rng.shuffle(batches)
        for batch in batches:
            yield batch[self.rank :: self.world]


class Captioner(nn.Module):
    def __init__(self, width=48, dropout=0.1):
        super().__init__()
        self.encoder = nn.Sequential()
        for inside, outside in [(3, 16), (16, width)]:
            conv = nn.Conv2d(inside, outside, 5, 2, 2, bias=False)
            self.encoder.extend([conv, nn.GroupNorm(8, outside), nn.ReLU()])
        self.place = nn.Parameter(0.1 * torch.randn((SIZE // 4) ** 2, width))
        self.embed = nn.Embedding(len(VOCAB), width, padding_idx=PAD)
        self.start, self.query = nn.Linear(width, width), nn.Linear(width, width)
        self.cell = nn.GRUCell(2 * width, width)
        self.drop, self.head = nn.Dropout(dropout), nn.Linear(2 * width, len(VOCAB))

    def look(self, images):
        cells = self.encoder(2 * images - 1).flatten(2).transpose(1, 2) + self.place
        return cells, torch.tanh(self.start(cells.mean(1)))

    def step(self, token, state, cells):
        scores = (cells @ self.query(state).unsqueeze(2)) / cells.shape[2] ** 0.5
        seen = (scores.softmax(1) * cells).sum(1)
        state = self.cell(torch.cat([self.embed(token), seen], 1), state)
        return self.head(self.drop(torch.cat([state, seen], 1))), state

    def forward(self, images, captions, own=0.0):
        """Return the logits of the next tokens. A part `own` is fed with own guesses."""
        (cells, state), outputs = self.look(images), []
        for t in range(captions.shape[1] - 1):
            token = captions[:, t]
            if t and own:
                ours = torch.rand(len(token), device=token.device) < own
                token = torch.where(ours, outputs[-1].argmax(1), token)
            logits, state = self.step(token, state, cells)
            outputs.append(logits)
        return torch.stack(outputs, 1)

    @torch.no_grad()
    def greedy(self, images):
        cells, state = self.look(images)
        token, words = torch.full((len(images),), BOS, device=images.device), []
        for _ in range(MAX_LEN):
            logits, state = self.step(token, state, cells)
            token = logits.argmax(1)
            words.append(token)
        rows = [[*row, EOS] for row in torch.stack(words, 1).tolist()]
        return [row[: row.index(EOS)] for row in rows]


def token_loss(logits, captions, smoothing):
    logits, goal = logits.flatten(0, 1), captions[:, 1:].flatten()
    return F.cross_entropy(logits, goal, None, None, PAD, reduction="sum", label_smoothing=smoothing)


def evaluate(net, data, rank, world, device):
    """Return the loss of a token and the BLEU-2 of the whole set, on all ranks."""
    net.eval()
    ids = range(rank, len(data), world)
    counts = torch.zeros(8, dtype=torch.double)  # hits and guesses by n, lengths, loss, tokens
    for start in range(0, len(ids), 128):
        batch = collate([data[i] for i in ids[start : start + 128]])
        images, captions = (tensor.to(device) for tensor in batch)
        with torch.no_grad():
            counts[6] += token_loss(net(images, captions), captions, 0.0).item()
        counts[7] += (captions[:, 1:] != PAD).sum().item()
        for guess, row in zip(net.greedy(images), captions.tolist()):
            truth = row[1 : row.index(EOS)]
            counts[4:6] += torch.tensor([len(guess), len(truth)])
            for n in (1, 2):
                found, there = (Counter(zip(*(r[k:] for k in range(n)))) for r in (guess, truth))
                counts[n - 1] += (found & there).total()
                counts[n + 1] += found.total()
    counts = counts.to(device)
    dist.all_reduce(counts)
    precision = (counts[:2] / counts[2:4].clamp(min=1)).clamp(min=1e-9).log().mean().exp()
    bleu = precision * (1 - counts[5] / counts[4].clamp(min=1)).clamp(max=0).exp()
    return (counts[6] / counts[7]).item(), bleu.item()


def train_epoch(model, loader, optimizer, own, world, device):
    """Take an epoch. Return the sum of the losses and the number of tokens of all ranks."""
    model.train()
    total, seen, group = torch.zeros((), device=device), 0, []
    for i, batch in enumerate(loader, 1):
        group.append(batch)
        if len(group) < ACCUMULATE and i < len(loader):
            continue
        tokens = sum((captions[:, 1:] != PAD).sum() for _, captions in group).to(device)
        dist.all_reduce(tokens)  # DDP takes the mean of the ranks, hence `world` below
        for k, (images, captions) in enumerate(group, 1):
            images, captions = images.to(device), captions.to(device)
            with contextlib.nullcontext() if k == len(group) else model.no_sync():
                loss = token_loss(model(images, captions, own), captions, SMOOTHING)
                (loss * world / tokens).backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        seen, group = seen + tokens.item(), []
    dist.all_reduce(total)
    return total.item(), seen


def stage(net, tune, epochs, train, val, best, rank, world, device):
    """Train with the encoder frozen or tuned. Return the best BLEU."""
    net.encoder.requires_grad_(tune)
    model = DDP(net, device_ids=[device.index] if device.type == "cuda" else None)
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR / 2 if tune else LR, weight_decay=1e-4)
    plateau = ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.05)
    batches = BucketBatches([len(c) for c in train.captions], BATCH, rank, world, SEED)
    loader = DataLoader(train, batch_sampler=batches, collate_fn=collate)
    stale = 0
    for epoch in epochs:
        batches.set_epoch(epoch)
        own = OWN * min(1, epoch / 4)
        total, tokens = train_epoch(model, loader, optimizer, own, world, device)
        val_loss, bleu = evaluate(net, val, rank, world, device)
        plateau.step(val_loss)
        if rank == 0:
            lr = optimizer.param_groups[0]["lr"]
            losses = f"train {total / tokens:.4f}, val {val_loss:.4f}"
            print(f"epoch {epoch}: {losses}, bleu {bleu:.4f}, lr {lr:.5f}", flush=True)
        stale += 1
        if bleu > best:
            best, stale = bleu, 0
            if rank == 0:
                torch.save({"net": net.state_dict(), "epoch": epoch, "bleu": bleu}, BEST)
        if stale > PATIENCE:
            break
    dist.barrier()
    return best


def main():
    if "RANK" not in os.environ:
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="29511")
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)

    train = ShapesCaptions(874, SEED, JITTER)
    val, test = ShapesCaptions(61, SEED + 1), ShapesCaptions(151, SEED + 2)
    torch.manual_seed(SEED)
    net = Captioner(dropout=DROPOUT).to(device)
    torch.manual_seed(1000 * (SEED + 1) + rank)  # jitter, dropout and guesses by rank

    best = stage(net, False, range(WARM), train, val, -1.0, rank, world, device)
    net.load_state_dict(torch.load(BEST, map_location=device)["net"])
    best = stage(net, True, range(WARM, WARM + TUNE), train, val, best, rank, world, device)
    kept = torch.load(BEST, map_location=device)
    net.load_state_dict(kept["net"])
    loss, bleu = evaluate(net, test, rank, world, device)
    if rank == 0:
        print(f"test: {loss:.4f}, bleu {bleu:.4f}, of epoch {kept['epoch']} (val bleu {best:.4f})")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
