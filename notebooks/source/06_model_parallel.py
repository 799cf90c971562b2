# %% [markdown] idea
# # 6: a model on two GPUs
#
# The first layers live on one GPU, the last on another. Here you see what is where, how the two
# halves wait for each other, and what you would gain by cutting the batch into micro-batches.
# With fewer than two GPUs both halves are on one device.
# %% start
import sys
from pathlib import Path

folders = [Path.cwd(), *Path.cwd().parents]
root = next((f for f in folders if (f / "tools/pages/notebook.py").exists()), None)
if root is None:
    raise RuntimeError("open this notebook from a clone of the repository")
sys.path.insert(0, str(root))
from tools.pages import notebook as nb

nb.prepare()
# %% [markdown] diff-text
# ## The diff from stage 2
# %% diff
nb.show_diff("06_model_parallel")
# %% [markdown] run-text
# ## Run both, and lay the curves on each other
# %% run
nb.run("02_single_gpu", EPOCHS=2)
nb.run("06_model_parallel", EPOCHS=2)
# %% curve
nb.curve("02_single_gpu", "06_model_parallel")
# %% [markdown] where-text
# ## What is where
# %% where
import itertools
import time

import torch
from torch import nn

from tools.run.stages import load

stage = load("06_model_parallel")
print(f"first half on {stage.DEVICE}, second half on {stage.SECOND}")
torch.manual_seed(0)
model = stage.Net(2048)
for index, layer in enumerate(model.layers):
    half = "first " if index < 3 else "second"
    size = sum(weights.nbytes for weights in layer.parameters()) / 1e6
    where = {str(weights.device) for weights in layer.parameters()} or {"no weights"}
    print(f"{half} {index} {type(layer).__name__:8} {size:6.2f} MB  {', '.join(where)}")


# %% [markdown] timeline-text
# ## The two halves take turns
#
# The cell measures the four parts of a step, forward and backward in each half, and draws them
# one after the other, as they run. For the picture the halves are two equal stacks of layers;
# in the script's network the first half does nearly all the work.
# %% timeline
def wait():
    for device in {stage.DEVICE, stage.SECOND}:
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)


def stack():
    return nn.Sequential(
        *[nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(4)]
    )


first, second = stack().to(stage.DEVICE), stack().to(stage.SECOND)
BATCH = 512


def measure(size):
    """Return the median seconds of: forward 1, forward 2, backward 2, backward 1."""
    times = []
    for _ in range(15):
        images = torch.rand(size, 512, device=stage.DEVICE)
        marks = []

        def mark(marks=marks):
            wait()
            marks.append(time.perf_counter())

        mark()
        hidden = first(images)
        mark()
        arrived = hidden.detach().to(stage.SECOND).requires_grad_()
        loss = second(arrived).square().mean()
        mark()
        loss.backward()
        mark()
        hidden.backward(arrived.grad.to(stage.DEVICE))
        mark()
        times.append([b - a for a, b in itertools.pairwise(marks)])
    return torch.tensor(times).median(dim=0).values.tolist()


def schedule(parts, count):
    """Return (half, start, length, colour, number) of each piece of `count` micro-batches.

    Start and length are in seconds. All forward passes, then all backward passes, as in
    GPipe (arXiv:1811.06965); each piece starts as soon as its half is free and what it
    needs is there.
    """
    forward1, forward2, backward2, backward1 = parts
    pieces, free, ready = [], [0.0, 0.0], [0.0] * count
    for half, length, colour in [(0, forward1, nb.BLUE), (1, forward2, nb.BLUE),
                                 (1, backward2, nb.ORANGE), (0, backward1, nb.ORANGE)]:
        for micro in range(count):
            start = max(free[half], ready[micro])
            pieces.append((half, start, length, colour, micro + 1))
            free[half] = ready[micro] = start + length
    return pieces


schedules = {count: schedule(measure(BATCH // count), count) for count in (1, 2, 4)}
# %% timeline-drawn
import matplotlib.pyplot as plt

figure, axes = plt.subplots(3, 1, figsize=(9, 5), layout="constrained", sharex=True)
spent = {}
for axis, (count, pieces) in zip(axes, schedules.items(), strict=True):
    spent[count] = end = max(start + length for _, start, length, *_ in pieces)
    for half, start, length, colour, micro in pieces:
        bar = axis.barh(half, 1000 * length, left=1000 * start, color=colour,
                        edgecolor="white")
        axis.bar_label(bar, [micro], label_type="center", color="white", fontsize=8)
    busy = sum(length for _, _, length, *_ in pieces) / (2 * end)
    axis.set(yticks=[0, 1], yticklabels=["first half", "second half"])
    axis.invert_yaxis()
    axis.set_title(f"{count} micro-batch{'es' * (count > 1)}: {1000 * end:.1f} ms, "
                   f"the halves are busy {busy:.0%} of the time", fontsize=9)
axes[-1].set_xlabel("milliseconds (blue: forward, orange: backward; the number: micro-batch)")
plt.show()
# %% [markdown] timeline-read
# The first picture is what the script does. The others are **computed**, not run: each piece was
# measured by itself, and starts in the picture as soon as its half is free. Two real devices come
# close to that if the pieces are long enough. Each piece also has a fixed cost, so many small
# pieces take longer in all than a few large ones.
# %% gain
for count, seconds in spent.items():
    print(f"{count} micro-batch{'es' * (count > 1)}: {1000 * seconds:.1f} ms a step, "
          f"{spent[1] / seconds:.2f} times as fast as one batch")
# %% [markdown] questions
# ## Questions
#
# **Two halves, equally long. How busy can they be with 1, 2 and 4 micro-batches, at best?**
#
# <details><summary>answer</summary>
#
# With $m$ micro-batches and $k$ parts, $m / (m + k - 1)$: 50 %, 67 %, 80 %. The rest is the
# *bubble*: each half has nothing to do while it waits for the other's first or last piece.
#
# </details>
#
# **Why does the loss not change when the batch is cut?**
#
# <details><summary>answer</summary>
#
# The gradients of the micro-batches add up to that of the batch, if each loss is divided by the
# number of micro-batches. A layer that looks at the whole batch, such as `BatchNorm`, would
# change it.
#
# </details>
#
# **The script's second half is one small layer. Is the cut in the right place?**
#
# <details><summary>answer</summary>
#
# For speed, no: the halves should take equally long. For memory it depends on where the weights
# are: look at the table above. A cut also costs a copy of the activations, so it is best where
# they are small.
#
# </details>
