"""What a transformer needs and sends, by formula; SCALING.md derives each.

Put in your own numbers. Nothing is measured; `make memory` measures the second curve.
"""

from typing import NamedTuple

FLOPS = 989e12  # of an H200 in bfloat16, dense, at its peak
MEMORY = 141e9  # bytes of an H200
SHARE = 0.4  # of the peak that a model reaches
NVLINK = 450e9  # bytes per second that a GPU sends to others in its machine
CARD = 50e9  # bytes per second that a network card of 400 Gbit/s sends
GPUS = 8  # of a machine


class Model(NamedTuple):
    """A transformer; a block has 12 width^2 weights, of which 8 are its MLP's."""

    blocks: int
    width: int
    vocabulary: int
    length: int  # tokens of a sequence

    @property
    def parameters(self):
        ends = 2 * self.vocabulary * self.width  # embedding and head
        return 12 * self.blocks * self.width**2 + ends


class Cluster(NamedTuple):
    """Machines with eight GPUs, and the network cards of each."""

    machines: int
    cards: int

    @property
    def ranks(self):
        return GPUS * self.machines

    @property
    def links(self):
        """Return {link: bytes per second that a GPU sends over it}.

        A ring uses all cards at once. Over `cards` each GPU sends to other machines,
        over `pair` only one does; `spread` is to all GPUs, also in the own machine.
        """
        if self.machines == 1:
            return dict.fromkeys(["machine", "ring", "cards", "pair", "spread"], NVLINK)
        cards = self.cards * CARD
        leaving = (self.ranks - GPUS) / (self.ranks - 1)  # of what is spread
        found = {"machine": NVLINK, "cards": cards / GPUS, "pair": CARD}
        found["ring"] = min(NVLINK, cards)
        found["spread"] = min(NVLINK, cards / GPUS / leaving)
        return found


SEVEN = Model(blocks=32, width=4096, vocabulary=32_000, length=4096)
CLUSTERS = {
    "one machine": Cluster(1, 8),
    "two machines": Cluster(2, 8),
    "two, with one card each": Cluster(2, 1),
}


def sent(model, cut, ranks, tokens, size=2):
    """Return {link: bytes} that a rank sends in a step of so many tokens, of all ranks.

    `size`: bytes of a weight, gradient or activation. `pipeline`: of a rank with two
    neighbors. `tensor`: without embedding and head. `experts`: one of each block's on a
    rank, as large as the MLP whose place they take.
    """
    share = (ranks - 1) / ranks
    inside = min(ranks, GPUS)
    weights = size * model.parameters
    mlps = size * model.blocks * 8 * model.width**2
    activations = size * tokens * model.width  # between two blocks
    across = model.blocks * activations
    return {
        "DDP": {"ring": 2 * share * weights},
        "FSDP": {"ring": 3 * share * weights},
        "HSDP": {
            "machine": 3 * (inside - 1) / inside * weights,
            "cards": 2 * (1 - inside / ranks) * weights / inside,
        },
        "tensor": {"ring": 8 * share * across},
        "pipeline": {"pair": 2 * activations},
        "context": {"pair": 4 * share * across, "ring": 2 * share * weights},
        "experts": {
            "spread": 4 * share * across / ranks,
            "ring": 2 * share * (weights - mlps),
        },
    }[cut]


def kept(model, tokens, size=2):
    """Return the bytes of activations that a block keeps for so many tokens."""
    return 16 * size * tokens * model.width


def saved(model, tokens, size=2, checkpointing=False):
    """Return the bytes of activations that a rank keeps for so many tokens of its own.

    With `checkpointing`, a block keeps its input alone; one computes again at a time.
    """
    block = kept(model, tokens, size)
    blocks = model.blocks * block
    if checkpointing:
        blocks = model.blocks * block / 16 + block
    head = tokens * (2 * size * model.width + 4 * model.vocabulary)
    return blocks + head


def state(model, cut, ranks):
    """Return the bytes of weights, gradients and Adam on a rank: 16 for a parameter."""
    whole = 16 * model.parameters
    parts = min(ranks, GPUS) if cut == "HSDP" else ranks
    return whole if cut in ("DDP", "context", "experts") else whole / parts


def thresholds(model, cluster):
    """Return {cut: from where on its messages can hide behind computing}.

    Tokens per GPU and step; of `tensor` the width, of `experts` an expert's width.
    For the pipeline, the tokens with which ranks are idle for a tenth of the time.
    """
    links = cluster.links
    share = (cluster.ranks - 1) / cluster.ranks
    inside = (GPUS - 1) / GPUS / NVLINK
    outside = (1 - 1 / cluster.machines) / GPUS / links["cards"]
    return {
        "DDP": share * FLOPS / links["ring"],
        "FSDP": share * FLOPS / links["ring"],
        "HSDP": FLOPS * max(inside, outside),
        "tensor": (cluster.ranks - 1) * FLOPS / links["ring"] / 4.5,
        "pipeline": 9 * share * model.length,
        "context": 2 * share * FLOPS / links["pair"],
        "experts": 2 / 3 * share * FLOPS / links["spread"],
    }


def step(model, cut, cluster, tokens):
    """Return the seconds of computing, and of a step if all overlaps, and if nothing.

    Of a pipeline with a sequence in each micro-batch.
    """
    ranks = cluster.ranks
    computing = 6 * model.parameters * tokens / (ranks * SHARE * FLOPS)
    busy = computing
    if cut == "pipeline":
        busy *= 1 + (ranks - 1) * model.length / tokens
    messages = sent(model, cut, ranks, tokens)
    seconds = {link: size / cluster.links[link] for link, size in messages.items()}
    late = {"DDP": "ring", "HSDP": "cards"}.get(cut)  # sent in the backward pass alone
    at_best = max(busy, *seconds.values(), computing / 3 + seconds.get(late, 0))
    return computing, at_best, busy + sum(seconds.values())
