"""
Trains a character-level GPT, in the manner of nanoGPT: one file, globals, no loader.
$ torchrun --standalone --nproc_per_node=2 train.py
"""

import math
import os

import torch
from torch import nn
from torch.distributed import all_reduce, destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

# -----------------------------------------------------------------------------
out_dir = os.environ.get("OUT_DIR", "runs/nanogpt")
eval_interval = 10
eval_iters = 12  # over all ranks
gradient_accumulation_steps = 6  # over all ranks: simulates larger batches
batch_size = 6
block_size = 24
n_embd = 32
dropout = 0.1
learning_rate = 5e-3
max_iters = int(os.environ.get("MAX_ITERS", "30"))
warmup_iters = 5
grad_clip = 0.2
# -----------------------------------------------------------------------------
init_process_group(backend="gloo")
ddp_rank = int(os.environ["RANK"])
ddp_world_size = int(os.environ["WORLD_SIZE"])
master_process = ddp_rank == 0
seed_offset = ddp_rank  # each process gets a different seed
assert gradient_accumulation_steps % ddp_world_size == 0
gradient_accumulation_steps //= ddp_world_size
tokens_per_iter = gradient_accumulation_steps * ddp_world_size * batch_size * block_size
if master_process:
    print(f"tokens per iteration will be: {tokens_per_iter:,}")
    os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337 + seed_offset)

# data: a text about nothing, and a held-out tenth of it
text = " ".join(f"{n} times {n % 7} is {n * (n % 7)};" for n in range(900))
chars = sorted(set(text))
vocab_size = len(chars)
ids = torch.tensor([chars.index(c) for c in text])
train_data, val_data = ids[: len(ids) * 9 // 10], ids[len(ids) * 9 // 10 :]


def get_batch(split):
    data = train_data if split == "train" else val_data
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x, y


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.h = nn.TransformerEncoderLayer(
            n_embd, 4, 2 * n_embd, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.init_weights()

    def init_weights(self):
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.05)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        causal = torch.full((idx.size(1), idx.size(1)), -torch.inf).triu(1)
        logits = self.lm_head(self.h(x, src_mask=causal))
        return F.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))


raw_model = GPT()
model = DDP(raw_model)
decay = [p for p in raw_model.parameters() if p.dim() > 1]
no_decay = [p for p in raw_model.parameters() if p.dim() <= 1]
groups = [{"params": decay}, {"params": no_decay, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95))


@torch.no_grad()
def estimate_loss():
    out = {}
    raw_model.eval()
    for split in ["train", "val"]:
        losses = torch.zeros(eval_iters // ddp_world_size)
        for k in range(len(losses)):
            losses[k] = raw_model(*get_batch(split))
        mean = losses.mean()
        all_reduce(mean)
        out[split] = mean.item() / ddp_world_size
    raw_model.train()
    return out


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / warmup_iters
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return (
        0.1 * learning_rate
        + 0.5 * (1.0 + math.cos(math.pi * ratio)) * 0.9 * learning_rate
    )


best_val_loss = 1e9
for iter_num in range(1, max_iters + 1):
    lr = get_lr(iter_num - 1)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    for micro_step in range(gradient_accumulation_steps):
        model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        X, Y = get_batch("train")
        loss = model(X, Y) / gradient_accumulation_steps
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

    if iter_num % eval_interval == 0:
        losses = estimate_loss()
        if master_process:
            train_loss, val_loss = losses["train"], losses["val"]
            print(f"step {iter_num}: train {train_loss:.4f}, val {val_loss:.4f}")
        if losses["val"] < best_val_loss:
            best_val_loss = losses["val"]
            if master_process:
                checkpoint = {"model": raw_model.state_dict(), "iter_num": iter_num}
                torch.save(checkpoint, os.path.join(out_dir, "ckpt.pt"))

destroy_process_group()
