"""Train stage 01 by hand, as an independent reference.

It uses nothing from the project and no layer, loader, sampler, autograd or optimizer:
NumPy follows the documentation. Only the random numbers are torch's. The weights of
`nn.Linear` are uniform within 1 / sqrt(inputs). An epoch's order is `torch.randperm`
with a generator seeded with seed + epoch.
"""

from pathlib import Path

import numpy as np
import torch


def idx(root, name, header):
    """Return an IDX file's bytes after its header, as a uint8 array."""
    path = Path(root) / "MNIST" / "raw" / f"{name}-ubyte"
    return np.frombuffer(path.read_bytes(), np.uint8, offset=header)


def images(root, part):
    """Return images, N x 784 float64 in [0, 1], and N labels from `train` or `t10k`."""
    pixels = idx(root, f"{part}-images-idx3", 16).reshape(-1, 784) / 255
    return pixels, idx(root, f"{part}-labels-idx1", 8)


def draw(shape, inputs):
    """Return initial float64 weights for a layer with this number of inputs."""
    bound = inputs**-0.5
    return torch.empty(shape, dtype=torch.float64).uniform_(-bound, bound).numpy()


def train(root, epochs=2, batch=64, lr=0.1, hidden=128, seed=0, ranks=1):
    """Train in float64; return [(loss, correct, total) per epoch] and the weights.

    The weights are a list: first layer (hidden x 784), its bias, second layer (10 x
    hidden), its bias. On several `ranks`, the start of the order is repeated at its end
    to make the length a multiple of `ranks`.
    """
    x, y = images(root, "train")
    test_x, test_y = images(root, "t10k")
    torch.manual_seed(seed)
    w1 = draw((hidden, 784), 784)
    b1 = draw((hidden,), 784)
    w2 = draw((10, hidden), hidden)
    b2 = draw((10,), hidden)
    curve = []
    for epoch in range(1, epochs + 1):
        generator = torch.Generator().manual_seed(seed + epoch)
        order = torch.randperm(len(x), generator=generator).numpy()
        order = np.concatenate([order, order[: -len(order) % ranks]])
        losses = 0.0
        for start in range(0, len(order), batch):
            some = order[start : start + batch]
            active = np.maximum(x[some] @ w1.T + b1, 0)
            logits = active @ w2.T + b2
            logits -= logits.max(axis=1, keepdims=True)
            chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
            losses -= np.log(chances[range(len(some)), y[some]]).sum()
            error = (chances - np.eye(10)[y[some]]) / len(some)  # softmax minus one-hot
            back = (error @ w2) * (active > 0)
            w1 -= lr * back.T @ x[some]
            b1 -= lr * back.sum(0)
            w2 -= lr * error.T @ active
            b2 -= lr * error.sum(0)
        guess = (np.maximum(test_x @ w1.T + b1, 0) @ w2.T + b2).argmax(axis=1)
        correct = int((guess == test_y).sum())
        curve.append((float(losses / len(order)), correct, len(test_y)))
    return curve, [w1, b1, w2, b2]
