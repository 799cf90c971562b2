"""The network of the tutorial by Lightning and by Accelerate, for the benchmark.

    python -m tools.bench.peers lightning data/mnist [usual]

Three epochs on the CPU, the test set after each. With the loader of stage 1, or with
the one that most tutorials have.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

from tools.bench.loops import stage_loader, usual_loader
from tools.run.data import tensors
from tools.run.stages import load


def lightning(model, train, test):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

        def validation_step(self, batch, _):
            correct = self.model(batch[0]).argmax(1) == batch[1]
            self.log("correct", correct.float().mean())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=3, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(Module(), train, test)


def accelerate(model, train, test):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    if train.batch_size:  # prepare fails on the loader of stage 1, which has none
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
    peer, root, *usual = sys.argv[1:]
    model = load("01_cpu").Net(128)
    if usual:
        model = model.layers  # ToTensor has divided by 255 already
        train = usual_loader(root, batch_size=64)
        test = usual_loader(root, train=False, batch_size=1000)
    else:
        train = stage_loader(tensors(root))
        test = DataLoader(tensors(root, train=False), batch_size=1000)
    {"lightning": lightning, "accelerate": accelerate}[peer](model, train, test)
