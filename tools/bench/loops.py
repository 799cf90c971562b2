"""The training loop of a stage beside a bare one and the usual one of tutorials.

The usual one takes each image through ToTensor, in two workers; on a GPU with
`pin_memory` and `non_blocking`, as PyTorch's tuning guide has it:
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

import os
import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from torchvision import datasets, transforms

from tools.run import data
from tools.run.stages import load


def in_rounds(candidates, rounds):
    """Return {name: what its calls returned}; each round calls every candidate once.

    So what slows the machine down for a while does not hit one candidate alone.
    """
    results = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, candidate in candidates.items():
            results[name].append(candidate())
    return results


def stage_loader(dataset, batch=64):
    """Return the loader of the training set that the stages have."""
    batches = BatchSampler(RandomSampler(dataset), batch, drop_last=False)
    return DataLoader(dataset, batch_size=None, sampler=batches)


def usual_loader(root, train=True, images=None, **options):
    """Return the loader that tutorials have, of the first so many images of a root."""
    dataset = datasets.MNIST(root, train, transforms.ToTensor())
    dataset.data, dataset.targets = dataset.data[:images], dataset.targets[:images]
    return DataLoader(dataset, shuffle=train, num_workers=2, **options)


def steps(model, optimizer, batches, device):
    """Take one step for each batch, and nothing else."""
    for images, labels in batches:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def epochs(root, images, rounds, device="cpu", hidden=128, batch=64):
    """Return {name: seconds of epochs} of a stage and of other loops.

    On the first `images` of `root`. The stage is 1 on the CPU, 2 on a GPU, where the
    bare loop has the whole training set in the GPU's memory.
    """
    stage = load("01_cpu" if device == "cpu" else "02_single_gpu")
    train = TensorDataset(*data.tensors(root)[:images])
    there = TensorDataset(*(tensor.to(device) for tensor in train.tensors))

    def model_and_optimizer():
        torch.manual_seed(0)
        model = stage.Net(hidden).to(device)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def of_stage():
        model, optimizer = model_and_optimizer()
        stage.train_epoch(model, stage_loader(train, batch), optimizer)

    def usual():
        pinned = device != "cpu"
        loader = usual_loader(root, True, images, batch_size=batch, pin_memory=pinned)
        model, optimizer = model_and_optimizer()
        steps(model.layers, optimizer, loader, device)  # ToTensor has divided

    def default_threads():
        torch.set_num_threads(os.cpu_count())
        usual()
        torch.set_num_threads(1)

    def bare():  # the limit: no loader
        order = torch.randperm(len(there), device=device)
        batches = (there[indices] for indices in order.split(batch))
        steps(*model_and_optimizer(), batches, device)

    def seconds(loop):
        start = time.perf_counter()
        loop()
        if device != "cpu":
            torch.cuda.synchronize()  # a GPU's work is only queued
        return time.perf_counter() - start

    loops = {f"stage {stage.STAGE[1]}": of_stage, "plain": usual, "bare": bare}
    if device == "cpu":
        loops["typed"] = default_threads
    bare()  # warm-up
    return in_rounds(
        {name: lambda loop=loop: seconds(loop) for name, loop in loops.items()}, rounds
    )
