# %% [markdown]
# # 2: one GPU
#
# The model and each batch move to the GPU. Nothing else changes. This notebook measures how much
# of a step's time goes into computing and how much into moving data. Without a GPU, every cell
# runs on the CPU.

# %%
import sys

sys.path.insert(0, "..")  # the repository
from tools.pages import notebook as nb

nb.prepare()

# %% [markdown]
# ## The diff from stage 1

# %%
nb.show_diff("02_single_gpu")

# %% [markdown]
# ## Run both stages and compare their curves

# %%
nb.run("01_cpu")
nb.run("02_single_gpu")

# %%
nb.curve("01_cpu", "02_single_gpu")

# %% [markdown]
# ## Where a step's time goes
#
# `torch.profiler` records every operation. The next cell trains the tutorial's network for a few
# steps, then a wide one, and draws the longest operations under PyTorch's names. The dark bars
# are matrix multiplications, which GPUs are good at. On a GPU the cell counts the time of the
# *kernels*, the programs that run on the GPU.

# %%
import torch
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from tools.pages import drawing
from tools.run.data import tensors
from tools.run.stages import load

stage = load("02_single_gpu")
device = torch.device(stage.DEVICE)
on_gpu = device.type == "cuda"
train = tensors(nb.mnist())


def profile_steps(hidden, batch, count):
    """Return a title with the time of a step, and each operation's share of it."""
    torch.manual_seed(0)
    model = stage.Net(hidden).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        images, labels = train[torch.randint(len(train), (batch,)).tolist()]
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    step()  # the first step is slower: memory, kernels
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu
    with profile(activities=activities) as profiler:
        for _ in range(count):
            step()
    events = [one for one in profiler.key_averages() if one.device_type == DeviceType.CPU]
    counted = "GPU"
    times = {one.key: one.self_device_time_total / 1e3 for one in events}
    if not any(times.values()):  # no GPU, or no CUDA profiler
        counted = "CPU"
        times = {one.key: one.self_cpu_time_total / 1e3 for one in events}
    total = sum(times.values())
    title = f"{hidden} wide, batch of {batch}: {total / count:.2f} ms of the {counted} a step"
    return title, {name: time / total for name, time in times.items()}


drawing.operations(dict([profile_steps(128, 64, count=20), profile_steps(2048, 1024, count=5)]))

# %% [markdown]
# With the tutorial's network, only part of the time is arithmetic. The rest goes into starting
# small operations. A GPU doesn't speed this part up, so it waits most of the time. With the wide
# network, nearly all of the time goes into multiplying matrices.
#
# **Change it:** does the width make the difference, or the batch? Try 128 units with a batch of
# 4096, then 2048 units with a batch of 64. In which picture do the dark bars grow?

# %% [markdown]
# ## What `pin_memory` and `non_blocking` change
#
# The operating system may move ordinary memory at any time. *Pinned* memory stays in place, so
# the GPU can read it without the CPU. From ordinary memory CUDA copies twice: first to pinned
# memory, then to the GPU. With `non_blocking=True`, the process continues while the copy runs.
# This works only with pinned memory.

# %%
import time

batch = torch.randint(256, (4096, 28, 28), dtype=torch.uint8)
print(f"a batch of {len(batch)} images: {batch.nbytes / 1e6:.1f} MB")


def milliseconds(source, non_blocking):
    """Return the median times of a copy and of the call that starts it."""
    whole, call = [], []
    for _ in range(20):
        start = time.perf_counter()
        # This copies even if the device is the CPU.
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
# **Why does the script move the model only once, but every batch?**
#
# <details><summary>answer</summary>
#
# The weights stay on the device and change there. The images are new in each step. All of MNIST's
# training images would fit on a GPU, since they are only 47 MB as bytes. Most datasets don't fit,
# and the script shows the general case.
#
# </details>
#
# **You measure 0.1 ms for `model(images)` on a GPU and 2 ms for a whole step. What did you
# measure?**
#
# <details><summary>answer</summary>
#
# You measured how long it takes to *start* the work. The call returns before the GPU finishes.
# Call `torch.cuda.synchronize()` before you read the clock.
#
# </details>
#
# **The losses on the GPU differ from the CPU's in the last digits. Is that a bug?**
#
# <details><summary>answer</summary>
#
# No. The GPU adds the same numbers in a different order, so it rounds differently. This difference
# grows from epoch to epoch. A bug causes a larger difference, even in the first epoch. The limits
# are in `tools/run/compare.py`.
#
# </details>
