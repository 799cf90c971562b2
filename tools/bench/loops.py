"""The training loop of a stage beside a bare loop and the plain loop of tutorials.

The plain loop converts each image with ToTensor, in two workers; on a GPU with
`pin_memory` and `non_blocking`, as PyTorch's tuning guide has it:
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from torchvision import datasets, transforms

from tools.run import data
from tools.run.stages import load

HIDDEN = 128  # units and images per batch, as the stages have them
BATCH = 64


def in_rounds(candidates, rounds):
    """Return {name: what its calls returned}; each round calls every candidate once.

    So what slows the machine down for a while does not hit one candidate alone.
    """
    results = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, candidate in candidates.items():
            results[name].append(candidate())
    return results


def take_steps(model, optimizer, batches, device):
    """Take one step for each batch, and nothing else."""
    for images, labels in batches:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def epochs(root, rounds, device="cpu"):
    """Return {name: seconds of epochs} of a stage, the plain loop and a bare one.

    On the training set of `root`. The stage is 1 on the CPU, 2 on a GPU, where the bare
    loop has the whole training set in the GPU's memory.
    """
    name = "01_cpu" if device == "cpu" else "02_single_gpu"
    stage = load(name)
    train = data.tensors(root)
    on_device = TensorDataset(*(tensor.to(device) for tensor in train.tensors))

    def model_and_optimizer():
        torch.manual_seed(0)
        model = stage.Net(HIDDEN).to(device)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def of_stage():
        model, optimizer = model_and_optimizer()
        batches = BatchSampler(RandomSampler(train), BATCH, drop_last=False)
        loader = DataLoader(train, batch_size=None, sampler=batches)
        stage.train_epoch(model, loader, optimizer)

    def plain():
        model, optimizer = model_and_optimizer()
        images = datasets.MNIST(root, transform=transforms.ToTensor())
        pinned = device != "cpu"
        options = {"shuffle": True, "num_workers": 2, "pin_memory": pinned}
        loader = DataLoader(images, BATCH, **options)
        take_steps(model.layers, optimizer, loader, device)  # ToTensor has divided

    def bare():  # the limit: no loader
        model, optimizer = model_and_optimizer()
        order = torch.randperm(len(on_device), device=device)
        batches = (on_device[indices] for indices in order.split(BATCH))
        take_steps(model, optimizer, batches, device)

    def seconds(loop):
        start = time.perf_counter()
        loop()
        if device != "cpu":
            torch.cuda.synchronize()  # a GPU's work is only queued
        return time.perf_counter() - start

    bare()  # warm-up
    candidates = {
        f"stage {int(name[:2])}": lambda: seconds(of_stage),
        "plain": lambda: seconds(plain),
        "bare": lambda: seconds(bare),
    }
    return in_rounds(candidates, rounds)
