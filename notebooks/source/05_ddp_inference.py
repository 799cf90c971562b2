# %% [markdown]
# # 5: evaluation on every rank
#
# Each rank evaluates its own part of the test images. Then the ranks sum their counts. In this
# notebook three ranks count in three ways, two of which are wrong.

# %%
import sys

sys.path.insert(0, "..")  # the repository
from tools.pages import notebook as nb

nb.prepare()

# %% [markdown]
# ## The diff from stage 4

# %%
nb.show_diff("05_ddp_inference")

# %% [markdown]
# ## Run stages 1 and 5 and compare their curves
#
# Stage 1 evaluates every test image in one process, so its counts are right.

# %%
nb.run("01_cpu")
nb.run("05_ddp_inference")

# %%
nb.curve("01_cpu", "05_ddp_inference")

# %% [markdown]
# ## Local, padded, exact
#
# Three processes evaluate the weights that stage 5 saved. They use nearly all test images, a
# number that three doesn't divide. First each rank counts only its own images, the *local* count.
# Then all ranks sum their counts twice: once with `DistributedSampler`, which repeats (*pads*)
# images until all ranks have equally many, and once with an exact split.

# %%
# %%ranks 3
import os

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler, Subset

from tools.run.data import tensors
from tools.run.stages import load

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
stage = load("01_cpu")  # its evaluate counts on one rank only
test = tensors(os.environ["MNIST"], train=False)
count = (len(test) - 2) // 3 * 3 + 1  # three doesn't divide it
model = stage.Net(128)
model.load_state_dict(torch.load("runs/notebooks/05_ddp_inference/model.pth"))

padded = list(DistributedSampler(range(count), shuffle=False))
exact = range(rank, count, world_size)
padded_counts = torch.tensor(stage.evaluate(model, Subset(test, padded)))
exact_counts = torch.tensor(stage.evaluate(model, Subset(test, exact)))

local = [torch.zeros(2, dtype=torch.int64) for _ in range(world_size)]
dist.all_gather(local, exact_counts)
dist.all_reduce(padded_counts)
dist.all_reduce(exact_counts)
if rank == 0:
    rows = {f"rank {rank}, local": counts for rank, counts in enumerate(local)}
    rows |= {"all, padded": padded_counts, "all, exact": exact_counts}
    for name, (correct, total) in rows.items():
        print(f"{name:15} {correct:5} of {total:5}  {100 * correct / total:.4f} %")
    mean = sum(correct / total for correct, total in local) / world_size
    print(f"there are {count} test images; "
          f"the mean of the ranks' accuracies is {100 * mean:.4f} %")
dist.destroy_process_group()

# %% [markdown]
# ## Which images are counted twice
#
# When `DistributedSampler` reaches the end, it repeats the first images until all ranks have equally
# many.

# %%
from torch.utils.data import DistributedSampler

for world_size in 2, 3, 4, 5, 7:
    parts = [list(DistributedSampler(range(10), world_size, rank, shuffle=False))
             for rank in range(world_size)]
    total = sum(map(len, parts))
    print(f"10 images on {world_size} ranks: {total - 10} twice", parts)

# %% [markdown]
# ## What each rank gets wrong
#
# The local counts differ because each rank misclassifies different images. Here are the first eight
# of each of three ranks, with the digit and the guess. If you change `RANKS`, the same mistakes move
# to other ranks, but their total stays the same.

# %%
import torch

from tools.pages import drawing
from tools.run.data import tensors
from tools.run.stages import load

RANKS = 3
model = load("01_cpu").Net(128)
model.load_state_dict(torch.load(nb.RUNS / "05_ddp_inference" / "model.pth"))
images, labels = tensors(nb.mnist(), train=False)[:]
with torch.no_grad():
    guesses = model(images).argmax(dim=1)
wrong = (guesses != labels).nonzero().flatten()
shown = []
for rank in range(RANKS):
    own = wrong[wrong % RANKS == rank]
    print(f"rank {rank} gets {len(own)} of its images wrong")
    shown += own[:8].tolist()
print(f"all ranks together: {len(wrong)}")
titles = [f"rank {one % RANKS}:\n{labels[one]}, not {guesses[one]}" for one in shown]
drawing.images(images[shown], titles)

# %% [markdown]
# ## Questions
#
# **With 10,000 test images, on how many ranks would the padding go unnoticed?**
#
# <details><summary>answer</summary>
#
# On every number that divides 10,000: 1, 2, 4, 5, 8, 10, 16 and so on. So a test on two GPUs doesn't
# find the mistake. Use three.
#
# </details>
#
# **Why do all ranks need equally many images in training but not in evaluation?**
#
# <details><summary>answer</summary>
#
# In training, each step averages the gradients with an `all_reduce`. A rank that runs out of batches
# doesn't call it, so the other ranks wait. Evaluation calls `all_reduce` only once, at the end.
#
# </details>
#
# **When is the mean of the ranks' accuracies right?**
#
# <details><summary>answer</summary>
#
# When all ranks have equally many images. The sum of the counts is always right and needs no more
# code.
#
# </details>
