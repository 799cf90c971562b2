# %% [markdown] idea
# # 3: `nn.DataParallel`
#
# One process, several GPUs: the wrapper cuts each batch (*scatter*), copies the model
# (*replicate*), computes on each GPU, and puts the outputs together (*gather*). Here you call
# these four yourself, and look at the shapes. With fewer than two GPUs the cells use a
# **stand-in**: the same four steps, on the CPU.
# %% here
import sys
from pathlib import Path

folders = [Path.cwd(), *Path.cwd().parents]
root = next((f for f in folders if (f / "tools" / "notebook.py").exists()), None)
if root is None:
    raise RuntimeError("open this notebook from a clone of the repository")
sys.path.insert(0, str(root))
from tools import notebook as nb

nb.here()
# %% [markdown] diff-text
# ## The diff from stage 2
# %% diff
nb.show_diff("03_dp")
# %% [markdown] run-text
# ## Run both, and lay the curves on each other
# %% run
nb.run("02_single_gpu", EPOCHS=2)
nb.run("03_dp", EPOCHS=2)
# %% curve
nb.curve("02_single_gpu", "03_dp")
# %% [markdown] four-text
# ## Scatter, replicate, apply, gather
# %% four
import copy

import torch
from torch import nn
from torch.nn import parallel

gpus = torch.cuda.device_count()
if gpus > 1:
    ids = list(range(gpus))

    def scatter(batch):
        return parallel.scatter(batch, ids)

    def replicate(model):
        return parallel.replicate(model, ids)

    def apply(replicas, parts):
        return parallel.parallel_apply(replicas, [(part,) for part in parts])

    def gather(outputs):
        return parallel.gather(outputs, 0)

else:
    print("fewer than two GPUs: the stand-in, with two copies on the CPU")

    def scatter(batch):
        return batch.chunk(2)

    def replicate(model):
        return [copy.deepcopy(model) for _ in range(2)]

    def apply(replicas, parts):
        return [replica(part) for replica, part in zip(replicas, parts, strict=True)]

    def gather(outputs):
        if isinstance(outputs[0], torch.Tensor):
            scalars = outputs[0].dim() == 0
            return torch.stack(outputs) if scalars else torch.cat(outputs)
        return tuple(gather(column) for column in zip(*outputs, strict=True))


stage = nb.load("03_dp")
device = "cuda" if gpus > 1 else "cpu"
model = stage.Net(128).to(device)
images, labels = stage.MNIST(nb.mnist()).__getitems__(list(range(64)))
batch = images.to(device)

parts = scatter(batch)
replicas = replicate(model)
outputs = apply(replicas, parts)
result = gather(outputs)
print("batch   ", tuple(batch.shape))
print("scatter ", *[tuple(part.shape) for part in parts])
print("apply   ", *[tuple(output.shape) for output in outputs])
print("gather  ", tuple(result.shape))
print(
    "same as the model on the whole batch:",
    torch.allclose(result, model(batch), atol=1e-5),
)
# %% [markdown] pieces-text
# A batch that cannot be cut evenly, and one that is smaller than the number of GPUs: the last
# part is smaller, or some GPUs get nothing. A `BatchNorm` layer would see only its part.
# %% pieces
for size in 64, 63, 3, 1:
    print(f"{size:3} images:", [len(part) for part in scatter(batch[:size])])


# %% [markdown] anchors-text
# ## The anchors that come back twice
#
# A detector such as SSD returns, for each image, a class and a box for each of 8,732 *anchors*;
# and for convenience the anchors themselves, which are the same for every image. `gather`
# cannot know that: it joins **every** output along dimension 0.
# %% anchors
class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("anchors", torch.rand(8732, 4))

    def forward(self, images):
        boxes = torch.zeros(len(images), 8732, 4, device=images.device)
        return boxes, self.anchors, boxes.sum()


detector = Detector().to(device)
boxes, anchors, loss = gather(apply(replicate(detector), scatter(batch[:16])))
print("boxes   ", tuple(boxes.shape), "  right: one row for each image")
print("anchors ", tuple(anchors.shape), "    wrong: twice as many as there are")
print("loss    ", tuple(loss.shape), "         a loss from each copy, not one")


# %% anchors-mended
def predict(images):
    boxes, _, losses = gather(apply(replicate(detector), scatter(images)))
    return boxes, detector.anchors, losses.mean()  # .module.anchors behind the wrapper


for name, value in zip(["boxes", "anchors", "loss"], predict(batch[:16]), strict=True):
    print(f"{name:8}", tuple(value.shape))
# %% [markdown] prefix-text
# ## The prefix in a checkpoint
# %% prefix
wrapped = nn.DataParallel(model)
print("wrapper ", *list(wrapped.state_dict())[:2])
print("model   ", *list(wrapped.module.state_dict())[:2])
keys = {
    key.removeprefix("module."): value for key, value in wrapped.state_dict().items()
}
print("loads again:", model.load_state_dict(keys))
# %% [markdown] questions
# ## Questions
#
# **Which of the four steps is done again in every forward pass, though its result is the same as
# long as the weights do not change?**
#
# <details><summary>answer</summary>
#
# `replicate`: all weights travel to all GPUs, in each step. `DistributedDataParallel` keeps a model
# in each process, and only the gradients travel.
#
# </details>
#
# **Two GPUs return losses 1.0 (of 40 images) and 2.0 (of 24). What is the loss of the batch?**
#
# <details><summary>answer</summary>
#
# $(40 \cdot 1 + 24 \cdot 2) / 64 = 1.375$. `.mean()` of the two gives 1.5: right only if the parts
# are equally large. The script computes the loss outside, from the gathered outputs.
#
# </details>
#
# **Why do the curves agree to the last digit without a second GPU?**
#
# <details><summary>answer</summary>
#
# The wrapper then calls the model itself. With two GPUs the sums are added in another order, and
# the last digits differ.
#
# </details>
