# %% [markdown]
# # 1: one process on the CPU
#
# The script [`01_cpu/mnist.py`](../01_cpu/mnist.py) trains a small network on handwritten
# digits and prints its loss. This notebook shows what the script doesn't print: the images,
# the network, one training step, and the digits that the network gets wrong. [The stage's
# page](../01_cpu/README.md) explains the script itself.

# %%
import sys

sys.path.insert(0, "..")  # the repository
from tools.pages import notebook as nb

nb.prepare()

# %% [markdown]
# ## The data
#
# The next cell imports the script as a module, so this notebook uses the script's network. It
# also uses the script's dataset, which consists of two tensors: the images as bytes, and the
# labels. So `train[:32]` returns 32 images and their labels.

# %%
import torch
from torch import nn

from tools.pages import drawing
from tools.run.data import tensors
from tools.run.stages import load

stage = load("01_cpu")
train, test = tensors(nb.mnist()), tensors(nb.mnist(), train=False)
images, labels = train[:32]
print("images", tuple(images.shape), images.dtype, "from", images.min().item(), "to",
      images.max().item())
print("labels", tuple(labels.shape), labels.dtype, labels[:10].tolist())

# %%
print("the first 32 training images, and their labels")
drawing.images(images, labels.tolist())

# %%
for name, part in ("training", train), ("test", test):
    counts = torch.bincount(part.tensors[1]).tolist()
    print(f"{name} images of each digit, 0 to 9:", *counts)

# %% [markdown]
# ## The network
#
# `forward` first divides the bytes by 255, so the layers get numbers from 0 to 1.

# %%
torch.manual_seed(0)
model = stage.Net(128)
print(model)
for name, weights in model.named_parameters():
    print(f"{name:16} {tuple(weights.shape)!s:12} {weights.numel():7} numbers")
total = sum(weights.numel() for weights in model.parameters())
print(f"{total} numbers, {total * 4 / 1e6:.2f} MB in float32")

# %% [markdown]
# ## One step by hand
#
# This cell does what `train_epoch` does for each batch. Before training, the network can only
# guess one of ten digits, so its loss is close to a random guess's, ln 10 = 2.30.

# %%
batch, answers = train[:64]
loss = nn.functional.cross_entropy(model(batch), answers)
print(f"before  {loss.item():.4f}")

loss.backward()
for weights in model.parameters():
    weights.data -= 0.1 * weights.grad  # what optimizer.step() of plain SGD does
after = nn.functional.cross_entropy(model(batch), answers)
print(f"after   {after.item():.4f}, on the same 64 images")

# %% [markdown]
# ## Run the script
#
# The script runs in its own process, as in a terminal. You see its output while it runs.

# %%
nb.run("01_cpu")
nb.curve("01_cpu")

# %% [markdown]
# ## What the network gets wrong
#
# The next cell loads the weights that the script saved and shows the network's most confident
# mistakes.

# %%
model.load_state_dict(torch.load(nb.RUNS / "01_cpu" / "model.pth"))
images, labels = test[:]
with torch.no_grad():
    chances = model(images).softmax(dim=1)
sure, guess = chances.max(dim=1)
mistakes = (guess != labels).nonzero().flatten()
print(f"{len(mistakes)} of {len(test)} test images are misclassified")

worst = mistakes[sure[mistakes].argsort(descending=True)][:16]
drawing.images(images[worst], [f"{labels[index]}, not {guess[index]}\n{sure[index]:.0%} sure"
                               for index in worst])

# %% [markdown]
# **Change it:** train ten times as long with `nb.run("01_cpu", "--epochs", 30)` and rerun the cell
# above. How many mistakes are left? Is the network less confident about them?

# %% [markdown]
# ## Questions
#
# **Why is a batch of 64 faster than 64 batches of one?**
#
# <details><summary>answer</summary>
#
# Each step has a fixed cost: it runs some Python code and starts a dozen small operations. A
# batch pays this cost once. Run `nb.run("01_cpu", "--batch-size", 16)` and compare the times.
#
# </details>
#
# **What happens to the loss if you repeat the step on the same 64 images many times? And to the
# loss on other images?**
#
# <details><summary>answer</summary>
#
# On the 64 images the loss gets close to zero, because the network can memorize them. On other
# images it soon stops falling. This is why every epoch shows the network all images, in a new
# order.
#
# </details>
#
# **`metrics.csv` contains about 16 digits of the loss, but the terminal shows six decimals. When
# do you need all of them?**
#
# <details><summary>answer</summary>
#
# When you compare two runs. On the CPU, stages 1, 2, 3 and 6 agree in all digits. Stages 4 and 5
# add the same numbers in a different order, so their last digits differ.
#
# </details>
