# %% [markdown]
# # 13: where a token looks
#
# A model that copies has to look back 15 tokens, but the loss doesn't show how it does that. This
# notebook shows how much each token attends to each token before it, in every head, before the
# cliff and after it. Then you cut the sequence as in stage 17 and see what another rank must send.

# %%
import sys
from types import SimpleNamespace

import matplotlib.pyplot as plt
import torch

sys.path.insert(0, "..")  # the repository
from tools.pages import notebook as nb
from tools.run import palette, stages

nb.prepare()
gpt = stages.load("13_gpt")

# %% [markdown]
# ## Train the model and look inside at each report
#
# The function recomputes the attention weights, because PyTorch's function doesn't return them.


# %%
def attention_maps(model, text):
    """Return how much each token attends to each: blocks x heads x queries x keys."""
    maps = []
    x = model.embedding(text)
    for block in model.blocks:
        tokens = block.norm1(x)
        q = gpt.split_heads(block.attention.q(tokens))
        k = gpt.split_heads(block.attention.k(tokens))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores += torch.full_like(scores, -torch.inf).triu(1)  # later tokens
        maps.append(scores.softmax(dim=-1)[0])
        x = block(x)
    return torch.stack(maps).detach().cpu()


torch.manual_seed(0)
model = gpt.GPT(blocks=2).to(gpt.DEVICE, torch.float64)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
args = SimpleNamespace(batch_size=32, seed=0)
text = gpt.draw_batch(1, seed=1000)[0].to(gpt.DEVICE)
maps = {}
for last in 30, 60, 90, 120, 150:
    loss, correct, total = gpt.train(model, optimizer, args, range(last - 29, last + 1))
    print(f"step {last:3}  loss {loss:.6f}  copied {correct}/{total}")
    maps[last] = attention_maps(model, text)

# %% [markdown]
# ## Cut the sequence and see what other ranks must send
#
# The upper row shows the heads of the first block. Each row of a panel is a query token, with a bar
# in its rank's color. Each dot is a token it attends to, in the color of the rank with that key. If
# the colors differ, the ring must send the key. **Change `STEP` to 30, 60 or 90, and `RANKS` to 4.**

# %%
STEP, RANKS = 150, 2
owner = torch.arange(gpt.LENGTH) * RANKS // gpt.LENGTH  # the rank of each token
colors = [palette.LIGHT[f"rank{rank}"] for rank in owner]
query, key = torch.tril_indices(gpt.LENGTH, gpt.LENGTH)
figure, panels = plt.subplots(2, 4, figsize=(6.4, 3.6), sharex=True, sharey=True)
for axis, looks in zip(panels.flat, maps[STEP].flatten(0, 1), strict=True):
    dots = [colors[place] for place in key]
    axis.scatter(key, query, 7 * looks[query, key], dots, marker="s", rasterized=True)
    axis.barh(range(gpt.LENGTH), -2, 1, -1, color=colors)
axis.invert_yaxis()
for rank in range(RANKS):
    looked = maps[STEP][:, :, owner == rank].mean(dim=(0, 1, 2))  # of each key
    print(f"rank {rank}: {looked[owner != rank].sum():.0%} of its looks go elsewhere")
