# %% [markdown]
# # 3: `nn.DataParallel`
#
# One process, several GPUs: the wrapper cuts each batch (*scatter*), copies the model
# (*replicate*), computes on each GPU (*apply*), and puts the outputs together (*gather*). Here
# you take these four steps yourself and look at the shapes. With fewer than two GPUs the cells
# use a **stand-in**: the same four steps on the CPU.

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
nb.show_diff("03_dp")

# %% [markdown]
# ## Run both, and lay the curves on each other

# %%
nb.run("02_single_gpu")
nb.run("03_dp")

# %%
nb.curve("02_single_gpu", "03_dp")

# %% [markdown]
# ## Scatter, replicate, apply, gather
#
# The four steps are functions of `nn.parallel`. `nb` calls them for two GPUs, or the stand-in.

# %%
import torch
from torch import nn

from tools.run.data import tensors
from tools.run.stages import load

stage = load("03_dp")
device = "cuda" if nb.two_gpus() else "cpu"
print("on two GPUs" if nb.two_gpus() else "fewer than two GPUs: the stand-in, on the CPU")
model = stage.Net(128).to(device)
images, labels = tensors(nb.mnist())[:64]
batch = images.to(device)

parts = nb.scatter(batch)
replicas = nb.replicate(model)
outputs = nb.apply(replicas, parts)
result = nb.gather(outputs)
print("batch   ", tuple(batch.shape))
print("scatter ", *[tuple(part.shape) for part in parts])
print("apply   ", *[tuple(output.shape) for output in outputs])
print("gather  ", tuple(result.shape))
print("same as the model on the whole batch:", torch.allclose(result, model(batch), atol=1e-5))

# %% [markdown]
# In the picture the colour says on which GPU an image is, and which computed its row of the
# output: blue the first, orange the second. The rows come back in the order of the images.

# %%
drawing.four_steps(batch, parts, outputs, result)

# %% [markdown]
# If a batch cannot be cut evenly, the last part is smaller; if it has fewer images than there
# are GPUs, some GPUs get nothing. A `BatchNorm` layer would see only its own part.

# %%
for size in 64, 63, 3, 1:
    print(f"{size:3} images:", [len(part) for part in nb.scatter(batch[:size])])


# %% [markdown]
# ## The anchors that come back twice
#
# For each image, a detector such as SSD returns a class and a box for each of 8,732 *anchors*;
# for convenience it also returns the anchors themselves, which are the same for every image.
# `gather` cannot know that: it joins **every** output along dimension 0.

# %%
class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("anchors", torch.rand(8732, 4))

    def forward(self, images):
        boxes = torch.zeros(len(images), 8732, 4, device=images.device)
        return boxes, self.anchors, boxes.sum()


detector = Detector().to(device)
boxes, anchors, loss = nb.gather(nb.apply(nb.replicate(detector), nb.scatter(batch[:16])))
print("boxes   ", tuple(boxes.shape), "  right: one row for each image")
print("anchors ", tuple(anchors.shape), "    wrong: twice as many as there are")
print("loss    ", tuple(loss.shape), "         a loss from each copy, not one")


# %%
def predict(images):
    boxes, _, losses = nb.gather(nb.apply(nb.replicate(detector), nb.scatter(images)))
    return boxes, detector.anchors, losses.mean()  # .module.anchors behind the wrapper


for name, value in zip(["boxes", "anchors", "loss"], predict(batch[:16]), strict=True):
    print(f"{name:8}", tuple(value.shape))

# %% [markdown]
# ## The prefix in a checkpoint
#
# The wrapper's weights are the model's, but each name has `module.` in front. The script keeps
# the model beside the wrapper and saves the model, so its checkpoint loads anywhere. In a
# checkpoint that was saved from the wrapper, the names have to be mended.

# %%
dp_model = nn.DataParallel(model)
print("dp_model.state_dict() ", *list(dp_model.state_dict())[:2])
print("model.state_dict()    ", *list(model.state_dict())[:2])
mended = {
    name.removeprefix("module."): weights
    for name, weights in dp_model.state_dict().items()
}
print("mended:", model.load_state_dict(mended))

# %% [markdown]
# ## Questions
#
# **Which of the four steps moves the most data in this network, and moves it again in every
# forward pass?**
#
# <details><summary>answer</summary>
#
# `replicate`: all weights travel to all GPUs, in every step. `DistributedDataParallel` keeps a
# model in each process, and only the gradients travel.
#
# </details>
#
# **Two GPUs return losses 1.0 (of 40 images) and 2.0 (of 24). What is the loss of the batch?**
#
# <details><summary>answer</summary>
#
# $(40 \cdot 1 + 24 \cdot 2) / 64 = 1.375$. Their `.mean()` is 1.5, which is right only if the
# parts are equally large. The script computes the loss outside the wrapper, from the gathered
# outputs.
#
# </details>
#
# **Why do the curves agree to the last digit without a second GPU?**
#
# <details><summary>answer</summary>
#
# Because the wrapper then just calls the model. With two GPUs the sums are added in another
# order, and the last digits differ.
#
# </details>
