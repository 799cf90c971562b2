"""What an exercise may expect of a run besides: `expect` in its exercise.toml.

Each function gets a Record, and raises Wrong.
"""

import ast
import math

from onecurve import api
from tools.lab.exercise import find_exercise
from tools.lab.record import Wrong

REDUCES = ["all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"]
TOKENS = 32  # in a sequence
FEW = 1000  # numbers, such as counts, losses or predictions


def loads_anywhere(record):
    """What is saved says that it was on the CPU, and nn.DataParallel stays."""
    if set(record.locations) - {"cpu"}:
        raise Wrong(
            "What is saved with two GPUs cannot be loaded without one: a file says "
            "where its tensors were, and they have to be on the CPU."
        )
    steps = len(record.of("step"))
    copied = sum(event["training"] for event in record.of("gpu replicas"))
    if record.setting.fake and copied < steps:
        raise Wrong(
            f"With two GPUs nn.DataParallel was at work in {copied} of {steps} "
            "training steps: it has to stay."
        )


def by_ddp(record):
    """DistributedDataParallel reduces the gradients, once per step, and nobody else."""
    for rank in record.ranks:
        for number, calls in enumerate(calls_of_steps(record, rank), start=1):
            by_hand = [one for one in calls if one["name"] in REDUCES]
            by_hand = [one for one in by_hand if (one["numbers"] or 0) > FEW]
            if by_hand:
                line = api.line_number(by_hand[0]["line"])
                raise Wrong(
                    f"The script reduces {by_hand[0]['numbers']} numbers by itself, "
                    f"with {by_hand[0]['name']}: what the ranks exchange is up to "
                    f"DistributedDataParallel.\n  at {api.at(record.text, line)}"
                )
            count = sum(one["name"] == "backward" for one in calls)
            if count != 1:
                raise Wrong(
                    f"For step {number} of rank {rank}, DistributedDataParallel "
                    f"reduces the gradients {count} times, expected once."
                )


def calls_of_steps(record, rank):
    """Yield the calls of collectives from each step of a rank's optimizer to the next.

    They begin with the first backward pass. A call "backward" is DDP's, in one; those
    of DDP's hooks are left out.
    """
    calls = []
    begun = by_hook = False
    for event in record.events[rank]:
        begun = begun or event["kind"] == "backward"
        if begun and not by_hook and event["kind"] == "collective_call":
            calls.append(event)
        elif event["kind"] == "step":
            yield calls
            calls = []
        by_hook = event["kind"] == "by_hook"


def no_ddp(record):
    """The gradients are exchanged by hand."""
    if record.of("ddp"):
        raise Wrong(
            "The script uses DistributedDataParallel; the task is to do without."
        )


def stream(record):
    """The training images come from a stream, which has no size, by its own `read`."""
    if any("size" in read for read in record.readings(0, True)):
        raise Wrong("The training images do not come as a stream any more.")
    start = find_exercise("16").script("start")
    if function(record.text, "read") != function(start, "read"):
        raise Wrong("`read` stands for a server, and is not as it was.")


def function(text, name):
    """Return the statements of a function of a script, however they are laid out."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return [ast.dump(one) for one in node.body[1:]]  # after its docstring


def goes_on(record):
    """A resumed run trains only the epochs that the first one has not."""
    epochs = record.setting.epochs - record.setting.resume
    wanted = epochs * math.ceil(record.setting.train / record.setting.batch)
    steps = len(record.of("step"))
    if steps != wanted:
        raise Wrong(
            f"The run with --resume takes {steps} steps; the {epochs} epochs that are "
            f"left have {wanted}."
        )


def one_writer(record):
    """One process writes files, and no other does."""
    writers = [rank for rank in record.ranks if record.of("file", rank)]
    if len(writers) != 1:
        names = " and ".join(f"rank {rank}" for rank in writers) or "no rank"
        raise Wrong(f"The files are written by {names}, expected one process.")


def all_trained(record):
    """All weights of the network change in training."""
    first, *_, last = [event["weights"] for event in record.of("weights")]
    stuck = [name for name in first if first[name] == last[name]]
    if stuck:
        raise Wrong(
            f"{', '.join(stuck)} did not change in training, in "
            f"{len(record.of('step'))} steps of the optimizer: no step updates what "
            "the network computes with."
        )


def sequences_cut(record):
    """Each rank gets its part of every sequence and no other tokens."""
    batch = record.setting.batch
    part = batch * TOKENS // len(record.ranks)
    for rank in record.ranks:
        sequences = [len(one["rows"]) for one in record.of("pass", rank) if one["grad"]]
        if set(sequences) != {batch}:
            raise Wrong(
                f"Rank {rank} gets {sequences[0]} of {batch} sequences in a step, "
                "expected its part of every sequence."
            )
        tokens = max(one["numbers"] for one in record.of("given", rank))
        if tokens > part:
            raise Wrong(
                f"Rank {rank} gets {tokens} tokens in a step, expected its part of "
                f"every sequence: {part}."
            )


def gathers(record):
    """Keys and values are gathered from all ranks."""
    if not any("gather" in call["name"] for call in record.of("collective_call")):
        raise Wrong("The script gathers nothing: keys and values are to be gathered.")


def passes_on(record):
    """Keys and values are passed on, and not gathered."""
    for call in record.of("collective_call"):
        if "gather" in call["name"] and (call["numbers"] or 0) > FEW:
            raise Wrong("Keys and values are gathered, and no longer passed on.")


def recomputed(record):
    """Each step computes both blocks, or more, a second time."""
    blocks = 4  # tensors: the weights and biases of two layers
    for rank in record.ranks:
        steps = len(record.of("step", rank))
        again = sum(event["parameters"] for event in record.of("recomputed", rank))
        if again < blocks * steps:
            told = f"{2 * again / blocks / steps:.2g} of the 2 blocks again"
            raise Wrong(
                f"In a step of rank {rank}, the backward pass computes {told}, "
                "expected both."
            )


def sharded(record):
    """Each rank's optimizer holds a part of the weights."""
    whole = sum(tensor.numel() for tensor in record.state_dict().values())
    for rank in record.ranks:
        held = max(step["held"] for step in record.of("step", rank))
        if held >= whole:
            raise Wrong(
                f"The optimizer of rank {rank} holds {held} numbers, and the whole "
                f"network has {whole}: it is not sharded any more."
            )


def own_experts(record):
    """Each rank has weights that no other rank has."""
    first, *others = [events[0]["weights"] for events in record.on_all("weights")]
    if all(one == first for one in others):
        raise Wrong("All ranks have the same weights, expected experts of their own.")
