# %% [markdown]
# # 6: a model on two GPUs
#
# The first layers of the model are on one GPU and the last layers on another. This notebook shows
# where each layer is, how the two halves wait for each other, and what you gain by splitting each
# batch into smaller *micro-batches*. With fewer than two GPUs, both halves are on one device.

# %%
import sys

sys.path.insert(0, "..")  # the repository
from tools.pages import notebook as nb

nb.prepare()

# %% [markdown]
# ## The diff from stage 2

# %%
nb.show_diff("06_model_parallel")

# %% [markdown]
# ## Run both stages and compare their curves

# %%
nb.run("02_single_gpu")
nb.run("06_model_parallel")

# %%
nb.curve("02_single_gpu", "06_model_parallel")

# %% [markdown]
# ## Where each layer is

# %%
import time

import torch
from torch import nn

from tools.pages import drawing
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


# %% [markdown]
# ## The two halves take turns
#
# A step has four parts: a forward and a backward pass in each half. The next cell measures each
# part. In the script's network, the first half does nearly all the work, so the cell uses two
# equal stacks of layers instead.

# %%
def stack():
    layers = [nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*layers)


first, second = stack().to(stage.DEVICE), stack().to(stage.SECOND)


def clock():
    """Return the time in milliseconds, once every GPU has finished its work."""
    for gpu in range(torch.cuda.device_count()):
        torch.cuda.synchronize(gpu)
    return 1000 * time.perf_counter()


def step(size):
    """Return the times of a step's four parts, in milliseconds."""
    images = torch.rand(size, 512, device=stage.DEVICE)
    times = [clock()]
    hidden = first(images)
    times.append(clock())
    arrived = hidden.detach().to(stage.SECOND).requires_grad_()
    loss = second(arrived).square().mean()
    times.append(clock())
    loss.backward()
    times.append(clock())
    hidden.backward(arrived.grad.to(stage.DEVICE))
    times.append(clock())
    return torch.tensor(times, dtype=torch.float64).diff()


pieces = {}
for count in 1, 2, 4:
    size = 512 // count
    steps = torch.stack([step(size) for _ in range(15)])
    parts = steps.median(dim=0).values.tolist()
    print(f"{size} images:", *[f"{part:.2f}" for part in parts], "ms")
    pieces[count] = drawing.schedule(parts, count)

# %%
drawing.schedules(pieces, "milliseconds")

# %% [markdown]
# The first panel shows what the script does. The other panels are **computed**: the cell above
# measured each piece alone, and here each piece starts as soon as its half is free. Two real
# devices come close to this if the pieces are long enough. Each piece also has a fixed cost, so
# many small pieces take longer in total than a few large ones.

# %%
for count, found in pieces.items():
    spent = max(start + length for _, start, length, *_ in found)
    if count == 1:
        whole = spent
    print(f"{count} micro-batch{'es' * (count > 1)}: {spent:.1f} ms a step, "
          f"{whole / spent:.2f} times as fast as one batch")

# %% [markdown]
# **Change it:** give the second half two stacks, `nn.Sequential(stack(), stack())`. Which half now
# waits, no matter how many micro-batches there are?

# %% [markdown]
# ## Questions
#
# **If both halves take equally long, how busy can they be with 1, 2 and 4 micro-batches?**
#
# <details><summary>answer</summary>
#
# With $m$ micro-batches and $k$ parts of the model, each part is busy for $m / (m + k - 1)$ of the
# time, here 50%, 67% and 80%. The rest is called the *bubble*: a half waits for the other half's
# first or last piece.
#
# </details>
#
# **Why doesn't the loss change if you split the batch?**
#
# <details><summary>answer</summary>
#
# If you divide each micro-batch's loss by the number of micro-batches, the gradients sum to the
# gradient of the batch. This doesn't hold for layers that use the whole batch, such as
# `BatchNorm`.
#
# </details>
#
# **The script's second half is one small layer. Is the cut in the right place?**
#
# <details><summary>answer</summary>
#
# Not for speed, because both halves should take equally long. For memory, it depends on where the
# weights are: see the table above. Each step also copies the activations from one half to the
# other, so cut the model where the activations are small.
#
# </details>
