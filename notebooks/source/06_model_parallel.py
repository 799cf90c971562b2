# %% [markdown]
# # 6: a model on two GPUs
#
# The first layers live on one GPU, the last on another. Here you see what is where, how the two
# halves wait for each other, and what you would gain by cutting the batch into micro-batches.
# With fewer than two GPUs both halves are on one device.

# %%
import sys
from pathlib import Path

folders = [Path.cwd(), *Path.cwd().parents]
root = next((f for f in folders if (f / "tools/pages/notebook.py").exists()), None)
if root is None:
    raise RuntimeError("open this notebook from a clone of the repository")
sys.path.insert(0, str(root))
from tools.pages import drawing
from tools.pages import notebook as nb

nb.prepare()

# %% [markdown]
# ## The diff from stage 2

# %%
nb.show_diff("06_model_parallel")

# %% [markdown]
# ## Run both, and lay the curves on each other

# %%
nb.run("02_single_gpu")
nb.run("06_model_parallel")

# %%
nb.curve("02_single_gpu", "06_model_parallel")

# %% [markdown]
# ## What is where

# %%
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


# %% [markdown]
# ## The two halves take turns
#
# The cell measures the four parts of a step, forward and backward in each half, and draws them
# one after the other, as they run. For the picture the halves are two equal stacks of layers;
# in the script's network the first half does nearly all the work.

# %%
def stack():
    layers = [nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(4)]
    return nn.Sequential(*layers)


first, second = stack().to(stage.DEVICE), stack().to(stage.SECOND)


def step(size):
    images = torch.rand(size, 512, device=stage.DEVICE)
    yield  # the clock is read at each of these
    hidden = first(images)
    yield
    arrived = hidden.detach().to(stage.SECOND).requires_grad_()
    loss = second(arrived).square().mean()
    yield
    loss.backward()
    yield
    hidden.backward(arrived.grad.to(stage.DEVICE))
    yield


measured = {count: nb.laps(step, 512 // count) for count in (1, 2, 4)}
for count, parts in measured.items():
    print(f"{512 // count} images:", *[f"{1000 * seconds:.2f}" for seconds in parts], "ms")

# %%
pieces = {count: drawing.schedule(parts, count) for count, parts in measured.items()}
drawing.schedules(pieces)

# %% [markdown]
# The first picture is what the script does. The others are **computed**, not run: each piece was
# measured by itself, and starts in the picture as soon as its half is free. Two real devices come
# close to that if the pieces are long enough. Each piece also has a fixed cost, so many small
# pieces take longer in all than a few large ones.

# %%
spent = {count: max(start + length for _, start, length, *_ in found)
         for count, found in pieces.items()}
for count, seconds in spent.items():
    print(f"{count} micro-batch{'es' * (count > 1)}: {1000 * seconds:.1f} ms a step, "
          f"{spent[1] / seconds:.2f} times as fast as one batch")

# %% [markdown]
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
