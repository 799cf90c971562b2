"""Write a checkpoint as a machine with three GPUs does: `python as_on_gpus.py FILE`."""

import itertools
import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torchvision import datasets

SAMPLE = Path(__file__).parents[1] / "data/sample"


def train():
    """Return the weights of stage 1's network after 30 steps of 1000 images each."""
    torch.manual_seed(1)
    layers = torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(784, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 10),
    )
    mnist = datasets.MNIST(SAMPLE)
    images = mnist.data[:1000] / 255
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.5)
    for _ in range(30):
        optimizer.zero_grad()
        cross_entropy(layers(images), mnist.targets[:1000]).backward()
        optimizer.step()
    return {f"layers.{key}": value for key, value in layers.state_dict().items()}


def save(weights, path):
    """Write tensors of the CPU to a file that says that they were on cuda:0, 1, 2."""
    places = itertools.cycle(["cuda:0", "cuda:1", "cuda:2"])
    tag = torch.serialization.location_tag
    torch.serialization.location_tag = lambda storage: next(places)
    try:
        torch.save(weights, path)
    finally:
        torch.serialization.location_tag = tag


if __name__ == "__main__":
    save(train(), sys.argv[1])
