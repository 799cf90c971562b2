"""Distill a teacher into a small convolutional student, in bfloat16, with an average.

Start: torchrun --nproc-per-node=2 train.py
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

CONFIG = {
    "classes": 6,
    "batch": 64,  # of all processes together
    "epochs": 5,
    "lr": 0.01,
    "temperature": 3.0,
    "soft": 0.7,  # how much the teacher counts
    "features": 0.1,
    "ema": 0.9,
    "seed": 11,
}


def patterns():
    g = torch.Generator().manual_seed(5)
    return torch.randn(CONFIG["classes"], 1, 12, 12, generator=g)


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(CONFIG["classes"], (n,), generator=g)
    x = 0.35 * patterns()[y] + torch.randn(n, 1, 12, 12, generator=g)
    return TensorDataset(x, y)


class Teacher(nn.Module):
    """Knows the patterns."""

    def __init__(self):
        super().__init__()
        self.features = nn.Linear(144, CONFIG["classes"])

    def forward(self, x):
        features = self.features(x.flatten(1))
        return features, features / 4


def block(inputs, outputs):
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))


class Student(nn.Module):
    def __init__(self, project=False):
        super().__init__()
        self.net = nn.Sequential(block(1, 16), block(16, 16), nn.Flatten())
        self.fc = nn.Linear(144, CONFIG["classes"])
        if project:  # to the teacher's features; not needed afterwards
            self.project = nn.Linear(144, CONFIG["classes"])

    def forward(self, x):
        hidden = self.net(x)
        if hasattr(self, "project"):
            return self.project(hidden), self.fc(hidden)
        return self.fc(hidden)


def load_teacher(path):
    """The first process makes the file, if there is none; all read it."""
    teacher = Teacher()
    if dist.get_rank() == 0 and not os.path.exists(path):
        known = {"features.weight": patterns().flatten(1)}
        torch.save({**known, "features.bias": torch.zeros(CONFIG["classes"])}, path)
    dist.barrier()
    teacher.load_state_dict(torch.load(path))
    return teacher.eval().requires_grad_(False)


def distillation_loss(student_out, teacher_out, labels):
    (s_features, s_logits), (t_features, t_logits) = student_out, teacher_out
    t = CONFIG["temperature"]
    soft = F.kl_div(
        F.log_softmax(s_logits.float() / t, 1),
        F.softmax(t_logits.float() / t, 1),
        reduction="batchmean",
    )
    hard = F.cross_entropy(s_logits.float(), labels)
    hint = F.mse_loss(s_features.float(), t_features.float() / 10)
    alpha = CONFIG["soft"]
    return alpha * t * t * soft + (1 - alpha) * hard + CONFIG["features"] * hint


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    count = torch.zeros(2, dtype=torch.long)
    for x, y in loader:
        out = model(x)
        logits = out[1] if isinstance(out, tuple) else out
        count[0] += (logits.argmax(1) == y).sum()
        count[1] += len(y)
    dist.all_reduce(count)
    return (count[0] / count[1]).item()


def run():
    rank, world = dist.get_rank(), dist.get_world_size()
    train, val = make_data(768, 1), make_data(205, 2)
    sampler = DistributedSampler(train, seed=CONFIG["seed"])
    loader = DataLoader(train, CONFIG["batch"] // world, sampler=sampler)
    val_loader = DataLoader(Subset(val, range(rank, len(val), world)), 64)

    torch.manual_seed(CONFIG["seed"])
    teacher = load_teacher("teacher.pt")
    model = DistributedDataParallel(Student(project=True))
    ema = AveragedModel(
        model.module, multi_avg_fn=get_ema_multi_avg_fn(CONFIG["ema"]), use_buffers=True
    )
    optimizer = torch.optim.SGD(
        model.parameters(), CONFIG["lr"], momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, CONFIG["epochs"] * len(loader)
    )

    best = 0.0
    for epoch in range(CONFIG["epochs"]):
        sampler.set_epoch(epoch)
        model.train()
        losses = torch.zeros(())
        for x, y in loader:
            with torch.autocast("cpu", torch.bfloat16):
                with torch.no_grad():
                    wanted = teacher(x)
                loss = distillation_loss(model(x), wanted, y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            ema.update_parameters(model.module)
            losses += loss.detach() / len(loader)
        dist.all_reduce(losses)
        acc = accuracy(ema.module, val_loader)
        if rank == 0:
            print(
                f"epoch {epoch} loss {losses / world:.4f} average's val acc {acc:.4f}"
            )
        if acc > best:
            best = acc
            if rank == 0:
                torch.save(ema.module.state_dict(), "student.pt")
            dist.barrier()

    # what will be shipped: without the projection
    student = Student()
    student.load_state_dict(torch.load("student.pt"), strict=False)
    acc = accuracy(student, val_loader)
    if rank == 0:
        print(f"shipped: val acc {acc:.4f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run()
    dist.destroy_process_group()
