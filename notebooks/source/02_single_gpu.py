# %% [markdown]
# # 2: one GPU
#
# The model and each batch move to the GPU, and nothing else changes. Here you see where a
# step spends its time: computing, or moving data. Without a GPU every cell runs on the CPU,
# and says what a GPU would show.

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
# ## The diff from stage 1

# %%
nb.show_diff("02_single_gpu")

# %% [markdown]
# ## Run both, and lay the curves on each other

# %%
nb.run("01_cpu")
nb.run("02_single_gpu")

# %%
nb.curve("01_cpu", "02_single_gpu")

# %% [markdown]
# ## Where a step's time goes
#
# `torch.profiler` records every operation. The cell trains for a few steps, twice: with the
# network of the tutorial, and with a wide one. On a GPU it counts the time of its kernels.

# %%
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from tools.run.data import tensors
from tools.run.stages import load

stage = load("02_single_gpu")
device = torch.device(stage.DEVICE)
on_gpu = device.type == "cuda"
train = tensors(nb.mnist())


def steps(hidden, batch, count=20):
    """Profile steps of training; return the seconds of each kind of operation."""
    torch.manual_seed(0)
    model = stage.Net(hidden).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        images, labels = train[torch.randint(len(train), (batch,)).tolist()]
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    step()  # the first one is slower: memory, kernels
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
    with profile(activities=activities) as profiler:
        for _ in range(count):
            step()
    found, counted = nb.by_kind(profiler.key_averages())
    milliseconds = 1000 * sum(found.values()) / count
    print(f"{hidden} wide, batch of {batch}: {milliseconds:.2f} ms of the {counted} a step")
    return found


measured = {"128 wide, batch of 64": steps(128, 64),
            "2048 wide, batch of 1024": steps(2048, 1024, 5)}

# %%
drawing.shares(measured)

# %% [markdown]
# With the tutorial's network only part of the time is arithmetic; the rest goes into starting
# small operations. That part does not shrink on a GPU, so the GPU waits. With the wide
# network nearly all of the time goes into multiplying matrices, which a GPU is good at.

# %% [markdown]
# ## What `pin_memory` and `non_blocking` change
#
# A GPU can fetch memory by itself only if the operating system may not move it (*pinned*
# memory). From ordinary memory CUDA copies twice, and the process waits. `non_blocking=True`
# lets the process go on at once, which makes sense with pinned memory only. The images move
# as bytes, a quarter of what they would be in float32; the network divides them on the device.

# %%
import time

batch = torch.randint(256, (4096, 28, 28), dtype=torch.uint8)
print(f"a batch of {len(batch)} images: {batch.nbytes / 1e6:.1f} MB")


def milliseconds(source, non_blocking):
    """Return the median time of a copy, and after how long the call came back."""
    whole, call = [], []
    for _ in range(20):
        start = time.perf_counter()
        # A copy in any case, also where the device is the CPU.
        torch.empty_like(source, device=device).copy_(source, non_blocking=non_blocking)
        call.append(time.perf_counter() - start)
        if on_gpu:
            torch.cuda.synchronize()
        whole.append(time.perf_counter() - start)
    return tuple(1000 * torch.tensor(times).median().item() for times in (whole, call))


cases = [("ordinary", batch, False)]
if on_gpu:
    cases += [("pinned", batch.pin_memory(), False),
              ("pinned, non_blocking", batch.pin_memory(), True)]
for name, source, non_blocking in cases:
    whole, call = milliseconds(source, non_blocking)
    print(f"{name:22} copied in {whole:.2f} ms, the call came back after {call:.2f} ms")
if not on_gpu:
    print("No GPU here: this was a copy within the CPU's memory. With a GPU the cell also "
          "times pinned memory.")

# %% [markdown]
# ## Questions
#
# **Why does the script move the model once, but every batch again?**
#
# <details><summary>answer</summary>
#
# The weights stay on the device and change there. The images are new in each step. All of MNIST
# would fit on a GPU (47 MB as bytes), but few data sets do, and the script shows the general
# case.
#
# </details>
#
# **A clock around `model(images)` says 0.1 ms on a GPU, a whole step takes 2 ms. What did the
# clock measure?**
#
# <details><summary>answer</summary>
#
# How long it takes to *ask* for the work. The call returns before the GPU has done it: call
# `torch.cuda.synchronize()` before you read the clock.
#
# </details>
#
# **The losses on the GPU differ from the CPU's in the last digits. Is that a bug?**
#
# <details><summary>answer</summary>
#
# No: the GPU adds the same products in another order, so it rounds differently, and the
# difference grows with the epochs. A bug shows at once, and is larger: see `tools/run/compare.py`
# for the limits.
#
# </details>
