"""Compute a transformer's memory and messages with the formulas of SCALING.md.

Use your own numbers. Nothing is measured; `make memory` measures the second curve.
"""

from typing import NamedTuple

PEAK = 989e12  # FLOP/s of an H200 in dense bfloat16
FLOPS = 0.4 * PEAK  # that a model reaches
MEMORY = 141e9  # bytes of an H200
NVLINK = 450e9  # bytes per second that a GPU sends to others in its machine
CARD = 50e9  # bytes per second that a 400 Gbit/s network card sends
GPUS = 8  # per machine


class Model(NamedTuple):
    """A transformer; a block has 12 width^2 weights, 8 width^2 of them in its MLP."""

    blocks: int
    width: int
    vocabulary: int
    length: int  # tokens per sequence

    @property
    def parameters(self):
        ends = 2 * self.vocabulary * self.width  # embedding and head
        return 12 * self.blocks * self.width**2 + ends


class Cluster(NamedTuple):
    """Machines with eight GPUs and `cards` network cards each."""

    machines: int
    cards: int

    @property
    def ranks(self):
        return GPUS * self.machines

    @property
    def links(self):
        """Return {link: bytes per second that a GPU sends over it}.

        A ring uses all cards at once. Over `cards`, every GPU sends to other machines;
        over `pair`, only one does. `spread` goes to all GPUs of all machines.
        """
        if self.machines == 1:
            return dict.fromkeys(["machine", "ring", "cards", "pair", "spread"], NVLINK)
        cards = self.cards * CARD
        leaving = (self.ranks - GPUS) / (self.ranks - 1)  # fraction of the spread data
        found = {"machine": NVLINK, "cards": cards / GPUS, "pair": CARD}
        found["ring"] = min(NVLINK, cards)
        found["spread"] = min(NVLINK, cards / GPUS / leaving)
        return found


SEVEN = Model(blocks=32, width=4096, vocabulary=32_000, length=4096)
CLUSTERS = {
    "one machine": Cluster(1, 8),
    "two machines": Cluster(2, 8),
    "two, one card each": Cluster(2, 1),
}


def sent(model, cut, ranks, tokens, size=2):
    """Return {link: bytes} that a rank sends in a step; `tokens` are all ranks' tokens.

    `size`: bytes of a weight, gradient or activation. `pipeline`: for a rank with two
    neighbors. `tensor`, `grid`: without embedding and head. `grid`: tensor parallelism
    inside each machine, FSDP between them. `experts`: one expert per rank and block, as
    large as the MLP that it replaces.
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
        "grid": {
            "machine": 8 * (inside - 1) / ranks * across,
            "cards": 3 * (1 - inside / ranks) * weights / inside,
        },
        "pipeline": {"pair": 2 * activations},
        "context": {"pair": 4 * share * across, "ring": 2 * share * weights},
        "experts": {
            "spread": 4 * share * across / ranks,
            "ring": 2 * share * (weights - mlps),
        },
    }[cut]


def kept(model, tokens, size=2):
    """Return the bytes of activations that a block keeps for `tokens` tokens."""
    return 16 * size * tokens * model.width


def saved(model, tokens, size=2, checkpointing=False):
    """Return the bytes of activations that a rank keeps for its `tokens` tokens.

    With `checkpointing`, blocks keep only their inputs and recompute one at a time.
    """
    block = kept(model, tokens, size)
    blocks = model.blocks * block
    if checkpointing:
        blocks = model.blocks * block / 16 + block
    head = tokens * (2 * size * model.width + 4 * model.vocabulary)
    return blocks + head


def state(model, cut, ranks):
    """Return a rank's bytes of weights, gradients and Adam: 16 per parameter."""
    whole = 16 * model.parameters
    parts = min(ranks, GPUS) if cut == "HSDP" else ranks
    return whole if cut in ("DDP", "context", "experts") else whole / parts


def fewest(cut, cluster):
    """Return how many sequences a step needs, so that every GPU has tokens."""
    if cut in ("DDP", "FSDP", "HSDP", "experts"):
        return cluster.ranks
    return cluster.machines if cut == "grid" else 1


def thresholds(model, cluster):
    """Return {cut: smallest size at which computation can hide its messages}.

    The size is tokens per GPU per step; for `tensor` the width, for `experts` an
    expert's width. At the pipeline's, ranks are idle for a tenth of the time.
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
        "grid": FLOPS * outside,
        "pipeline": 9 * share * model.length,
        "context": 2 * share * FLOPS / links["pair"],
        "experts": 2 / 3 * share * FLOPS / links["spread"],
    }


def step(model, cut, cluster, tokens):
    """Return the seconds of computation, of a step with full overlap, and with none.

    A pipeline uses micro-batches of one sequence.
    """
    ranks = cluster.ranks
    computing = 6 * model.parameters * tokens / (ranks * FLOPS)
    busy = computing
    if cut == "pipeline":
        busy *= 1 + (ranks - 1) * model.length / tokens
    messages = sent(model, cut, ranks, tokens)
    seconds = {link: size / cluster.links[link] for link, size in messages.items()}
    late = {"DDP": "ring", "HSDP": "cards"}.get(cut)  # sent only in the backward pass
    inside = seconds.get("machine", 0)
    outside = sum(seconds.values()) - inside  # these messages share the same links
    at_best = max(busy, inside, outside, computing / 3 + seconds.get(late, 0))
    return computing, at_best, busy + sum(seconds.values())
