"""A Trainer with callbacks, for a small classifier of sensor readings."""

import functools
import json
import os
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


@dataclass
class Config:
    epochs: int = 3
    batch_size: int = 48  # over all ranks
    lr: float = 0.05
    warmup_steps: int = 6
    eval_every: int = 5
    seed: int = 7
    out: str = "runs/trainer"


def rank_zero_only(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            return fn(*args, **kwargs)

    return wrapper


class Validate:
    def on_step_end(self, trainer):
        if trainer.step % trainer.cfg.eval_every:
            return
        correct, total = trainer.evaluate()
        trainer.log(step=trainer.step, val_acc=correct / total, n=total)
        if correct / total > trainer.best:
            trainer.best = correct / total
            trainer.save()


class LossLogger:
    def on_epoch_end(self, trainer):
        total = torch.tensor([trainer.loss_sum, trainer.seen])
        dist.all_reduce(total)
        loss = (total[0] / total[1]).item()
        trainer.log(epoch=trainer.epoch, loss=loss)


class Trainer:
    def __init__(self, cfg, model, train_set, test_set, callbacks):
        self.cfg, self.callbacks = cfg, callbacks
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.sampler = DistributedSampler(train_set, seed=cfg.seed, drop_last=True)
        batch = cfg.batch_size // self.world
        self.loader = DataLoader(train_set, batch, sampler=self.sampler, drop_last=True)
        own = range(self.rank, len(test_set), self.world)
        self.test_loader = DataLoader(Subset(test_set, own), batch_size=100)
        self.model = model
        self.ddp = nn.parallel.DistributedDataParallel(model)
        self.opt = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9)
        steps = cfg.epochs * len(self.loader)
        warm = lambda s: min((s + 1) / cfg.warmup_steps, (steps - s) / steps)
        self.sched = LambdaLR(self.opt, warm)
        self.step, self.epoch, self.best = 0, 0, 0.0

    def call(self, event):
        for callback in self.callbacks:
            getattr(callback, event, lambda trainer: None)(self)

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.epoch = epoch
            self.sampler.set_epoch(epoch)
            self.loss_sum, self.seen = 0.0, 0
            for x, y in self.loader:
                self.train_step(x, y)
                self.call("on_step_end")
            self.call("on_epoch_end")

    def train_step(self, x, y):
        self.ddp.train()
        loss = nn.functional.cross_entropy(self.ddp(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.sched.step()
        self.step += 1
        self.loss_sum += loss.item() * len(y)
        self.seen += len(y)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        for buffer in self.model.buffers():  # BatchNorm's, rank 0's for all
            dist.broadcast(buffer, src=0)
        correct = sum((self.model(x).argmax(1) == y).sum() for x, y in self.test_loader)
        counts = torch.stack([correct, torch.tensor(len(self.test_loader.dataset))])
        dist.all_reduce(counts)
        return counts.tolist()

    @rank_zero_only
    def log(self, **values):
        print(json.dumps(values))

    @rank_zero_only
    def save(self):
        os.makedirs(self.cfg.out, exist_ok=True)
        torch.save({"model": self.model.state_dict()}, self.cfg.out + "/best.pt")

    def load_best(self):
        dist.barrier()  # rank 0 may still be writing
        state = torch.load(self.cfg.out + "/best.pt", weights_only=True)
        self.model.load_state_dict(state["model"], strict=False)


def readings(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    centers = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    x = torch.randn(n, 12, generator=g)
    x[:, :2] += 2 * centers[y]
    return TensorDataset(x, y)


def main():
    cfg = Config(out=sys.argv[1]) if len(sys.argv) > 1 else Config()
    dist.init_process_group("gloo")
    torch.manual_seed(cfg.seed + dist.get_rank())  # DDP hands out rank 0's weights
    hidden = [nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2)]
    model = nn.Sequential(*hidden, nn.Linear(32, 4))
    data = readings(480, seed=1), readings(301, seed=2)
    trainer = Trainer(cfg, model, *data, callbacks=[Validate(), LossLogger()])
    trainer.fit()
    trainer.load_best()
    correct, total = trainer.evaluate()
    trainer.log(best=correct / total, n=total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
