"""Requirements that `expect` in exercise.toml names. Each raises Wrong if unmet."""

import ast
import math

from onecurve import api
from tools.lab.exercise import find_exercise
from tools.lab.record import Wrong

REDUCES = ["all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"]
TOKENS = 32  # per sequence of the second curve
BLOCKS, WIDTH = 2, 32  # of its transformer
FEW = 1000  # numbers; counts, losses and predictions have at most this many


def loads_anywhere(record):
    """The saved file loads without a GPU, and nn.DataParallel is still used."""
    if set(record.locations) - {"cpu"}:
        raise Wrong(
            "A file saved on two GPUs can't be loaded without a GPU. It records where "
            "its tensors were, which has to be the CPU."
        )
    steps = len(record.of("step"))
    copied = sum(event["training"] for event in record.of("gpu replicas"))
    if record.setting.fake and copied < steps:
        raise Wrong(
            f"With two GPUs, nn.DataParallel ran in {copied} of {steps} training "
            "steps. The task is to keep it."
        )


def by_ddp(record):
    """Only DistributedDataParallel reduces the gradients, once per step."""
    for rank in record.ranks:
        for number, calls in enumerate(calls_of_steps(record, rank), start=1):
            by_hand = [one for one in calls if one["name"] in REDUCES]
            by_hand = [one for one in by_hand if (one["numbers"] or 0) > FEW]
            if by_hand:
                line = api.line_number(by_hand[0]["line"])
                raise Wrong(
                    f"The script itself reduces {by_hand[0]['numbers']} numbers with "
                    f"{by_hand[0]['name']}. Leave this to DistributedDataParallel."
                    f"\n  at {api.at(record.text, line)}"
                )
            count = sum(one["name"] == "backward" for one in calls)
            if count != 1:
                raise Wrong(
                    f"For step {number} of rank {rank}, DistributedDataParallel "
                    f"reduces the gradients {count} times, expected once."
                )


def calls_of_steps(record, rank):
    """Yield a rank's collective calls, a list for each optimizer step.

    Each list has those from a backward pass to the step, without calls by DDP's hooks.
    """
    calls = []
    begun = by_hook = False
    for event in record.events[rank]:
        begun = begun or event["kind"] == "backward"
        if begun and not by_hook and event["kind"] == "collective_call":
            calls.append(event)
        elif event["kind"] == "state":
            begun = False  # the step has begun
        elif event["kind"] == "step":
            yield calls
            calls = []
        by_hook = event["kind"] == "by_hook"


def no_ddp(record):
    """The script doesn't use DistributedDataParallel."""
    if record.of("ddp"):
        raise Wrong("The script uses DistributedDataParallel. Do without it.")


def stream(record):
    """The training images come from a stream without a size; `read` is unchanged."""
    if any("size" in read for read in record.readings(0, True)):
        raise Wrong("The training images no longer come as a stream.")
    start = find_exercise("16").script("start")
    was_changed = function(record.text, "read") != function(start, "read")
    if was_changed or ".read()" not in record.text:
        raise Wrong("`read` stands for a server: leave it as it is, but use it.")


def function(text, name):
    """Return a function's statements, regardless of their layout."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return [ast.dump(one) for one in node.body[1:]]  # after its docstring


def goes_on(record):
    """A resumed run trains only the remaining epochs."""
    epochs = record.setting.epochs - record.setting.resume
    wanted = epochs * math.ceil(record.setting.train / record.setting.batch)
    steps = len(record.of("step"))
    if steps != wanted:
        raise Wrong(
            f"The run with --resume takes {steps} steps, but the {epochs} remaining "
            f"epochs have {wanted}."
        )


def one_writer(record):
    """Exactly one process writes files."""
    writers = [rank for rank in record.ranks if record.of("file", rank)]
    if len(writers) != 1:
        names = " and ".join(f"rank {rank}" for rank in writers) or "no rank"
        raise Wrong(f"The files are written by {names}, expected one process.")


def one_printer(record):
    """Only one process prints the curve."""
    count = record.stdout.count("epoch 1/")
    if count > 1:
        raise Wrong(f"{count} ranks print epoch 1, expected one.")


def same_statistics(record):
    """Ranks that evaluate different images have the same BatchNorm statistics."""
    for found in record.findings():
        if (found.name, found.level) == ("buffers", "ERROR"):
            raise Wrong(f"{found.what[0].upper()}{found.what[1:]}.")


def all_trained(record):
    """Training changes all of the network's weights."""
    first, *_, last = [event["weights"] for event in record.of("weights")]
    stuck = [name for name in first if first[name] == last[name]]
    if stuck:
        raise Wrong(
            f"{', '.join(stuck)} did not change in training. None of the "
            f"{len(record.of('step'))} optimizer steps updates the weights that the "
            "network computes with."
        )


def sequences_cut(record):
    """Each rank gets only its part of every sequence."""
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
                f"Rank {rank} gets {tokens} tokens in a step, expected {part}, its "
                "part of every sequence."
            )


def gathers(record):
    """Keys and values are gathered from all ranks."""
    if not collectives_in_forward(record):
        raise Wrong("The script gathers nothing. Gather the keys and values.")
    expect_keys(record, 1)


def passes_on(record):
    """Keys and values are passed on, not gathered."""
    calls = collectives_in_forward(record)
    if calls:
        told = f"The forward pass calls {' and '.join(sorted(calls))}"
        raise Wrong(f"{told}: keys and values no longer travel from rank to rank.")
    expect_keys(record, len(record.ranks) - 1)


def expect_keys(record, times):
    """Raise Wrong unless rank 0 sends its keys and values `times` in each block."""
    tokens = sum(event["numbers"] for event in record.of("given", 0))
    least = 2 * BLOCKS * WIDTH * tokens * times
    sizes = [event["numbers"] for event in calls_in_forward(record, 0)]
    moved = math.inf if None in sizes else sum(sizes)  # an unknown size is enough
    if moved < least:
        raise Wrong(
            f"Rank 0 sends {moved} numbers in its forward passes, but its keys and "
            f"values in both blocks are {least}."
        )


def calls_in_forward(record, rank):
    """Yield a rank's collectives, and what it sends to one rank, in forward passes."""
    in_forward = False
    for event in record.events[rank]:
        if event["kind"] in ("given", "backward"):
            in_forward = event["kind"] == "given"
        elif in_forward and event["kind"] in ("collective_call", "sent"):
            yield event


def collectives_in_forward(record):
    """Return the names of collectives for FEW numbers or more in forward passes."""
    found = set()
    for rank in record.ranks:
        for event in calls_in_forward(record, rank):
            if event["kind"] == "collective_call" and (event["numbers"] or 0) >= FEW:
                found.add(event["name"])
    return found - {"all_to_all", "all_to_all_single"}  # may send to one rank


def recomputed(record):
    """Each backward pass recomputes at least both blocks."""
    blocks = 4  # tensors: the weights and biases of two layers
    for rank in record.ranks:
        steps = len(record.of("step", rank))
        again = sum(event["parameters"] for event in record.of("recomputed", rank))
        if again < blocks * steps:
            told = f"recomputes {2 * again / blocks / steps:.2g} of the 2 blocks"
            raise Wrong(
                f"In a step of rank {rank}, the backward pass {told}, expected both."
            )


def expect_sharded(record, most):
    """Raise Wrong if an optimizer holds over `most` times an equal share of weights."""
    whole = sum(tensor.numel() for tensor in record.state_dict().values())
    for rank in record.ranks:
        held = max(step["held"] for step in record.of("step", rank))
        if held > most * whole / len(record.ranks):
            told = f"holds {held} of the network's {whole} numbers"
            raise Wrong(f"Rank {rank}'s optimizer {told}: it is no longer sharded.")


def mean_on_all(record):
    """In each step, every rank's optimizer gets an equally long gradient."""
    counts = [len(steps) for steps in record.on_all("step")]
    if len(set(counts)) > 1:
        raise Wrong(f"The ranks' optimizers take {counts} steps.")
    for number, each in enumerate(record.together("step"), start=1):
        norms = [math.sqrt(step["own"]) for step in each]
        if max(norms) - min(norms) > 1e-5 * max(norms):
            told = ", ".join(f"{norm:.6f}" for norm in norms)
            raise Wrong(f"In step {number} the ranks' gradient norms are {told}.")


def own_experts(record):
    """The ranks have different weights."""
    first, *others = [events[0]["weights"] for events in record.on_all("weights")]
    if all(one == first for one in others):
        raise Wrong("All ranks have the same weights, expected different experts.")
