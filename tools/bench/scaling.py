"""What a transformer needs and sends, by formula; SCALING.md derives each.

Put in your own model and machines at the top. Nothing in here is measured; the tests
hold what is sent and stored against what `make memory` measures for the second curve.
"""

from typing import NamedTuple

FLOPS = 989e12  # of an H200 in bfloat16, dense, at its peak
SHARE = 0.4  # of the peak that a model reaches
NVLINK = 450e9  # bytes per second that a GPU sends to others in its machine
CARD = 50e9  # bytes per second that a network card of 400 Gbit/s sends
GPUS = 8  # of a machine
SEQUENCES = 64  # of the global batch of the tables


class Model(NamedTuple):
    """A transformer; a block has 12 width^2 weights."""

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
    def ring(self):
        """Bytes per second of a ring through all GPUs: it uses all cards at once."""
        return NVLINK if self.machines == 1 else min(NVLINK, self.cards * CARD)

    @property
    def pair(self):
        """Bytes per second from a GPU to the next one, maybe in the next machine."""
        return NVLINK if self.machines == 1 else CARD


SEVEN = Model(blocks=32, width=4096, vocabulary=32_000, length=4096)
CLUSTERS = {
    "one machine": Cluster(1, 8),
    "two machines": Cluster(2, 8),
    "two, with one card each": Cluster(2, 1),
}


def sent(model, cut, ranks, tokens, size=2):
    """Return the bytes that a rank sends in a step with so many tokens, of all ranks.

    `size` is that of a weight, a gradient or an activation, in bytes. `pipeline`: of a
    rank with two neighbors. `tensor` leaves out the embedding and the head.
    """
    share = (ranks - 1) / ranks
    weights = size * model.parameters
    activations = size * tokens * model.width  # between two blocks
    return {
        "DDP": 2 * share * weights,
        "FSDP": 3 * share * weights,
        "tensor": 8 * share * activations * model.blocks,
        "pipeline": 2 * activations,
        "context": 4 * share * activations * model.blocks + 2 * share * weights,
    }[cut]


def saved(model, tokens, size=2, checkpointing=False):
    """Return the bytes of activations that a rank keeps for so many tokens of its own.

    With `checkpointing`, a block keeps its input alone; one computes again at a time.
    """
    block = 16 * size * tokens * model.width
    blocks = model.blocks * block
    if checkpointing:
        blocks = model.blocks * block / 16 + block
    head = tokens * (2 * size * model.width + 4 * model.vocabulary)
    return blocks + head


def state(model, cut, ranks):
    """Return the bytes of weights, gradients and Adam on a rank: 16 for a parameter."""
    whole = 16 * model.parameters
    return whole if cut in ("DDP", "context") else whole / ranks


def thresholds(model, cluster):
    """Return {cut: from where on its messages can hide behind computing}.

    Tokens per GPU and step; of `tensor` the width, of `experts` an expert's width.
    For the pipeline, the tokens with which ranks are idle for a tenth of the time.
    """
    others = cluster.ranks - 1
    share = others / cluster.ranks
    between = (cluster.machines - 1) / cluster.machines
    outside = between * FLOPS / (cluster.cards * CARD)  # through a machine's cards
    inside = (GPUS - 1) / GPUS * FLOPS / NVLINK
    dispatch = share * FLOPS / NVLINK
    return {
        "DDP": share * FLOPS / cluster.ring,
        "FSDP": share * FLOPS / cluster.ring,
        "HSDP": max(inside, outside),
        "tensor": others * FLOPS / cluster.ring / 4.5,
        "pipeline": 9 * share * model.length,
        "context": 2 * share * FLOPS / cluster.pair,
        "experts": 2 / 3 * max(dispatch, GPUS * outside),
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
    link = cluster.pair if cut in ("pipeline", "context") else cluster.ring
    exchange = sent(model, cut, ranks, tokens) / link
    at_best = max(busy, exchange)
    if cut == "DDP":  # which has nothing to send in the forward pass
        at_best = computing / 3 + max(computing * 2 / 3, exchange)
    return computing, at_best, busy + exchange
