# %% [markdown]
# # 3: `nn.DataParallel`
#
# One process drives several GPUs. In each step the wrapper splits the batch (*scatter*), copies
# the model (*replicate*), computes on each GPU (*apply*) and joins the outputs (*gather*). In this
# notebook you run these four yourself and look at the shapes. With fewer than two GPUs, **fake
# GPUs** do the same on the CPU.

# %%
import sys

sys.path.insert(0, "..")  # the repository
from tools.pages import notebook as nb

nb.prepare()

# %% [markdown]
# ## The diff from stage 2

# %%
nb.show_diff("03_dp")

# %% [markdown]
# ## Run both stages and compare their curves

# %%
nb.run("02_single_gpu")
nb.run("03_dp")

# %%
nb.curve("02_single_gpu", "03_dp")

# %% [markdown]
# ## Scatter, replicate, apply, gather
#
# All four are functions of `nn.parallel`. The next cell calls them for two GPUs. Fake GPUs are two
# copies of the model on the CPU, which compute one after the other.

# %%
import copy

import torch
from torch import nn

from tools.pages import drawing
from tools.run.data import tensors
from tools.run.stages import load

stage = load("03_dp")
two_gpus = torch.cuda.device_count() > 1
device = "cuda" if two_gpus else "cpu"
print("on two GPUs" if two_gpus else "fewer than two GPUs: two fake ones, on the CPU")
model = stage.Net(128).to(device)
images, labels = tensors(nb.mnist())[:64]
batch = images.to(device)

if two_gpus:
    parts = nn.parallel.scatter(batch, [0, 1])
    replicas = nn.parallel.replicate(model, [0, 1])
    outputs = nn.parallel.parallel_apply(replicas, parts)
    result = nn.parallel.gather(outputs, 0)
else:
    parts = batch.chunk(2)
    replicas = [copy.deepcopy(model), copy.deepcopy(model)]
    outputs = [replica(part) for replica, part in zip(replicas, parts, strict=True)]
    result = torch.cat(outputs)
print("batch   ", tuple(batch.shape))
print("scatter ", *[tuple(part.shape) for part in parts])
print("apply   ", *[tuple(output.shape) for output in outputs])
print("gather  ", tuple(result.shape))
print("same as the model on the whole batch:", torch.allclose(result, model(batch), atol=1e-5))

# %% [markdown]
# `scatter` splits the batch like `chunk`. If the number of GPUs doesn't divide the batch size, the
# last part is smaller. If the batch has fewer images than there are GPUs, some GPUs get nothing.
# Each GPU sees only its own part, so a `BatchNorm` layer computes the mean of that part alone.

# %%
for size in 64, 63, 3, 1:
    print(f"{size:3} images:", [len(part) for part in batch[:size].chunk(2)])

# %% [markdown]
# One GPU gets the first half of the batch, the other the second half. In stage 4 each gets every
# second image, which makes no difference to the sum. Change `SIZE` to see a part get smaller.

# %%
SIZE = 16
titles = []
for gpu, part in enumerate(batch[:SIZE].chunk(2)):
    titles += [f"GPU {gpu}"] * len(part)
drawing.images(images[:SIZE], titles)


# %% [markdown]
# ## A constant that is returned twice
#
# An object detector such as SSD compares each image with 8,732 fixed boxes, the *anchors*. It
# returns a class and a box for each anchor, and the anchors themselves, which are the same for
# every image. `gather` can't know this. It joins **every** output along dimension 0.

# %%
class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("anchors", torch.rand(8732, 4))

    def forward(self, images):
        boxes = torch.zeros(len(images), 8732, 4, device=images.device)
        return boxes, self.anchors, boxes.sum()


def data_parallel(images):
    """Return the wrapped detector's outputs on two GPUs, real or fake."""
    if two_gpus:
        return nn.parallel.data_parallel(detector, images, [0, 1])
    outputs = [detector(part) for part in images.chunk(2)]
    # A scalar becomes a tensor with one element, so that it can also be joined.
    return [torch.cat(torch.atleast_1d(*pair)) for pair in zip(*outputs, strict=True)]


detector = Detector().to(device)
boxes, anchors, loss = data_parallel(batch[:16])
print("boxes   ", tuple(boxes.shape), "  right: one row for each image")
print("anchors ", tuple(anchors.shape), "    wrong: twice as many as there are")
print("loss    ", tuple(loss.shape), "         a loss from each copy, not one")


# %%
def predict(images):
    boxes, _, losses = data_parallel(images)
    return boxes, detector.anchors, losses.mean()  # .module.anchors behind the wrapper


for name, value in zip(["boxes", "anchors", "loss"], predict(batch[:16]), strict=True):
    print(f"{name:8}", tuple(value.shape))

# %% [markdown]
# ## The prefix in a checkpoint
#
# The wrapper has the same weights as the model, but each name starts with `module.`. The script
# saves the model, not the wrapper, so you can load its checkpoint anywhere. If someone saved the
# wrapper, remove the prefix from the names.

# %%
dp_model = nn.DataParallel(model)
print("dp_model.state_dict() ", *list(dp_model.state_dict())[:2])
print("model.state_dict()    ", *list(model.state_dict())[:2])
renamed = {
    name.removeprefix("module."): weights
    for name, weights in dp_model.state_dict().items()
}
print("renamed:", model.load_state_dict(renamed))

# %% [markdown]
# ## Questions
#
# **Which of the four steps moves the most data, with this network?**
#
# <details><summary>answer</summary>
#
# `replicate` copies all weights to all GPUs in every step. `DistributedDataParallel` keeps a model
# in each process, so the processes send only gradients.
#
# </details>
#
# **One GPU returns a loss of 1.0 for 40 images, another returns 2.0 for 24 images. What is the
# loss of the whole batch?**
#
# <details><summary>answer</summary>
#
# It is $(40 \cdot 1 + 24 \cdot 2) / 64 = 1.375$. The `.mean()` of the two losses is 1.5, which is
# right only if both parts are equally large. The script computes the loss outside the wrapper,
# from all GPUs' outputs.
#
# </details>
#
# **Why do the curves agree in every digit if there is no second GPU?**
#
# <details><summary>answer</summary>
#
# Because the wrapper then only calls the model. With two GPUs the same numbers are added in a
# different order, so the last digits differ.
#
# </details>
