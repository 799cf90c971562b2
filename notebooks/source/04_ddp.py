# %% [markdown]
# # 4: `DistributedDataParallel`
#
# Each GPU has its own process, and each process trains on its own part of every batch. The
# processes average their gradients, so all of them take the same step. A *rank* is one of these
# processes, and also its number. This notebook shows which rank gets which images, what averaging
# does to the gradients, and that all ranks end up with the same weights. The ranks are real
# processes on the CPU.

# %%
import sys

sys.path.insert(0, "..")  # the repository
from tools.pages import notebook as nb

nb.prepare()

# %% [markdown]
# ## The diff from stage 2

# %%
nb.show_diff("04_ddp")

# %% [markdown]
# ## Run both stages and compare their curves

# %%
nb.run("02_single_gpu")
nb.run("04_ddp")

# %%
nb.curve("02_single_gpu", "04_ddp")

# %% [markdown]
# ## Which rank gets which image
#
# `DistributedSampler` accepts a rank as an argument, so one process can show all ranks. In the
# picture, each column is one of 24 images and each row is an epoch. The color shows which rank
# gets the image, and the number shows in which step.

# %%
from torch.utils.data import DistributedSampler

from tools.pages import drawing

IMAGES, RANKS, EPOCHS, PART = 24, 2, 4, 3  # each rank takes 3 images in a step


def who_and_when(calls_set_epoch):
    """Return the rank and the step of each image, a list of pairs for each epoch."""
    found = [[None] * IMAGES for _ in range(EPOCHS)]
    for rank in range(RANKS):
        sampler = DistributedSampler(range(IMAGES), RANKS, rank)
        for epoch in range(EPOCHS):
            if calls_set_epoch:
                sampler.set_epoch(epoch)
            for place, image in enumerate(sampler):
                found[epoch][image] = rank, place // PART + 1
    return found


# %%
drawing.assignments({"with set_epoch(epoch)": who_and_when(True),
                     "without it, every epoch repeats the first": who_and_when(False)})

# %% [markdown]
# **Change it:** pass `shuffle=False` to the sampler. The colors alternate and both pictures are the
# same, because without a shuffle `set_epoch` has no effect.

# %% [markdown]
# ## Gradients before and after the all-reduce
#
# DDP averages the gradients with an *all-reduce*, which combines a tensor over all ranks and gives
# every rank the result. The next cell starts with `%%ranks 2`, so the notebook writes it to a file
# that torchrun runs in two processes. `no_sync` turns the all-reduce off, so each rank keeps its
# own gradients.

# %%
# %%ranks 2
import os

import torch
import torch.distributed as dist
from torch import nn

from tools.run.data import tensors
from tools.run.stages import load

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
stage = load("04_ddp")
torch.manual_seed(0)
model = stage.Net(128)


def gradient(network, images, labels):
    """Return the gradients of the last layer's ten biases."""
    model.zero_grad()
    nn.functional.cross_entropy(network(images), labels).backward()
    return model.layers[3].bias.grad.clone()


images, labels = tensors(os.environ["MNIST"])[:64]
whole = gradient(model, images, labels)  # one process, with the whole batch

ddp_model = nn.parallel.DistributedDataParallel(model)
images, labels = images[rank::world_size], labels[rank::world_size]
with ddp_model.no_sync():
    own = gradient(ddp_model, images, labels)
reduced = gradient(ddp_model, images, labels)

shared = [None] * world_size
dist.all_gather_object(shared, (own, reduced, whole))
if rank == 0:
    torch.save(shared, os.environ["RESULT"])
dist.destroy_process_group()

# %%
import torch

(own0, after0, whole), (own1, after1, _) = torch.load(nb.RESULT)
print("before: the largest difference between the ranks is", f"{(own0 - own1).abs().max():.4f}")
print("after:  both ranks have the same gradients:", torch.equal(after0, after1))
print("after:  they are the mean of both:", torch.allclose(after0, (own0 + own1) / 2))
print("after:  one process has the same ones:", torch.allclose(after0, whole, atol=1e-6))

# %% [markdown]
# The bars are the gradients of the last layer's ten biases for one batch of 64 images. In the lower
# panel, each mark is the gradient that one process computes from the whole batch.

# %%
drawing.gradients((own0, own1), (after0, after1), whole)

# %% [markdown]
# ## The same weights on all ranks
#
# Three processes print a digest (SHA-256) of their weights before and after ten steps. They start
# with different seeds on purpose. When you create the DDP wrapper, it copies rank 0's weights to
# all ranks.

# %%
# %%ranks 3
import hashlib
import os

import torch
import torch.distributed as dist
from torch import nn

from tools.run.data import tensors
from tools.run.stages import load

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
stage = load("04_ddp")


def digest(model):
    data = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    return hashlib.sha256(data).hexdigest()[:12]


torch.manual_seed(rank)
model = stage.Net(128)
seen = [("built", digest(model))]
ddp_model = nn.parallel.DistributedDataParallel(model)
seen.append(("wrapped", digest(model)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train = tensors(os.environ["MNIST"])
for step in range(10):
    images, labels = train[63 * step + rank : 63 * (step + 1) : world_size]
    optimizer.zero_grad()
    nn.functional.cross_entropy(ddp_model(images), labels).backward()
    optimizer.step()
seen.append(("ten steps later", digest(model)))

shared = [None] * world_size
dist.all_gather_object(shared, seen)
if rank == 0:
    for row in zip(*shared, strict=True):
        print(f"{row[0][0]:16}", *[value for _, value in row])
dist.destroy_process_group()

# %% [markdown]
# ## Questions
#
# **The gradients are averaged, not added. What would change if they were added?**
#
# <details><summary>answer</summary>
#
# With *W* ranks, each step would be *W* times as large, so the right learning rate would depend on
# the number of GPUs. If all ranks have equally many images, the mean of their gradients is the
# gradient of the whole batch.
#
# </details>
#
# **In the lower picture, each epoch repeats the first one. Does each rank still see all images?**
#
# <details><summary>answer</summary>
#
# No. Each rank sees the same half of the images in every epoch, in the same batches. The model
# still learns from all images, because the ranks average their gradients. But every batch contains
# the same images in every epoch, so the order is no longer random.
#
# </details>
#
# **What would the digests show if each rank changed its weights after wrapping?**
#
# <details><summary>answer</summary>
#
# They would differ and never agree again. DDP copies the weights only once. After that it only
# averages gradients. The loss still falls, so the mistake is easy to miss.
#
# </details>
