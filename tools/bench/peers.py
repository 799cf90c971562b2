"""The network of the tutorial by Lightning and by Accelerate, for the benchmark.

    python tools/bench/peers.py lightning data/mnist [plain]

Three epochs on the CPU, the test set after each. With the loader of stage 1, or with the
one that most tutorials have: each image by ToTensor, two workers.
"""

import os
import sys

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from torchvision import datasets, transforms

sys.path.insert(0, os.getcwd())
from tools.run.data import tensors
from tools.run.stages import load

stage = load("01_cpu")
PLAIN = bool(sys.argv[3:])


def network():
    model = stage.Net(128)
    return model.layers if PLAIN else model  # ToTensor has divided by 255 already


def loaders(root):
    if PLAIN:
        parts = (
            datasets.MNIST(root, train, transforms.ToTensor())
            for train in (True, False)
        )
        sizes = (64, True), (1000, False)
        return [
            DataLoader(part, size, shuffle, num_workers=2)
            for part, (size, shuffle) in zip(parts, sizes, strict=True)
        ]
    train = tensors(root)
    batches = BatchSampler(RandomSampler(train), 64, drop_last=False)
    return (DataLoader(train, batch_size=None, sampler=batches),
            DataLoader(tensors(root, train=False), batch_size=1000))  # fmt: skip


def lightning(root):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch, _):
            self.log(
                "correct", (self.net(batch[0]).argmax(1) == batch[1]).float().mean()
            )

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=3, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(Module(), *loaders(root))


def accelerate(root):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    train, test = loaders(root)
    if PLAIN:  # its prepare fails on a loader with batch_size=None
        train, test = accelerator.prepare(train, test)
    for _ in range(3):
        model.train()
        for images, labels in train:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            sum((model(images).argmax(1) == labels).sum() for images, labels in test)


if __name__ == "__main__":
    torch.manual_seed(0)
    {"lightning": lightning, "accelerate": accelerate}[sys.argv[1]](sys.argv[2])
