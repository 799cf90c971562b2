"""What each rank of each stage holds: `make memory`, `make memory ARGS="--hidden 2048"`.

Runs every stage for one step, in which hooks measure: bytes of parameters and of
gradients, then of the state that SGD with momentum and that Adam keep for them; and of
the largest layer while it computes. Two stages hold what another one holds (SAME_AS),
and are not run. DDP's copy of the gradients in its buckets is not counted.
Writes runs/memory.png, or to OUT. GPUS=0,1 or cpu says on what; stages that cannot have
a GPU for each rank run on the CPU. On GPUs the peak within the step is CUDA's, of all
tensors; that is not verified.
"""

import json
import os
import re
import tempfile
from pathlib import Path

from tools.bench.benchmark import take_gpus
from tools.bench.figures import draw_memory
from tools.bench.memory_rank import KINDS, watch
from tools.bench.predict import gradient_bytes, moved
from tools.bench.tables import table
from tools.run import launch, ranks
from tools.run.data import shown
from tools.run.sample import cut
from tools.run.stages import CPU_PROCESSES, EVERY, ROOT, refuse, script

HIDDEN = 128
SAME_AS = {  # what they add, checkpoints, is not in a step
    "11_resume": "05_ddp_inference",
    "12_sharded_checkpoint": "07_fsdp",
}
MEASURED = [stage for stage in EVERY.values() if stage not in SAME_AS]
PARTS = {  # of the model, that a rank holds; not given: all of it
    "07_fsdp": "half of each tensor", "08_tensor_parallel": "half of the hidden units",
    "09_pipeline": "a layer", "10_hybrid": "half of each tensor of half of the units",
}  # fmt: skip


def part(number, ranks, rank):
    """Return how many of `number` rows a rank gets, by the rule of torch.chunk."""
    size = -(-number // ranks)
    return max(0, min(size, number - rank * size))


def held(stage, hidden, rank):
    """Return the bytes of a rank's {kind: bytes}, by formula, all in float32.

    Tensor parallelism cuts the hidden units; FSDP the rows of what is left, in stage 10
    among the ranks of a column. The last layer's bias is not cut by the former. Adam
    also counts the steps, in 4 bytes for each tensor.
    """
    data, tensor = {"07_fsdp": (2, 1), "08_tensor_parallel": (1, 2),
                    "10_hybrid": (2, 2)}.get(stage, (1, 1))  # fmt: skip
    row, column = divmod(rank % (data * tensor), tensor)
    units = part(hidden, tensor, column)
    layers = [785 * part(units, data, row), (units + 1) * part(10, data, row)]
    if stage == "09_pipeline":
        layers = [layers[rank]]
    size = 4 * sum(layers)
    return dict(zip(KINDS, [size, size, size, 2 * size + 8 * len(layers)], strict=True))


def measure(stage, hidden):
    """Return what each rank of a stage holds after a step: a list of {kind: bytes}."""
    number = CPU_PROCESSES.get(stage, 0)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        words = [script(stage), "--data", cut(folder / "data", 64, 10)]
        words += ["--out", folder, "--hidden", hidden]
        gpus = launch.count_gpus() >= max(number, 1)
        result = ranks.run(words, number, prepare=(watch, folder), gpus=gpus)
        files = [folder / f"{rank}.json" for rank in range(number or 1)]
        if result.returncode or not all(file.exists() for file in files):
            refuse(f"{stage} failed:\n{result.stderr[-2000:]}")
        return [json.loads(file.read_text()) for file in files]


def overview():
    """Return a table of MEASURED: what a rank holds, what moves, and when to use it.

    By formulas: `held` is tested against `measure`, the messages by tests/beyond.
    """
    whole, border, outputs = gradient_bytes(HIDDEN), 4 * 64 * HIDDEN, 4 * 64 * 10
    pair = held("08_tensor_parallel", HIDDEN, 0)["parameters"]
    says = {  # bytes sent, and what they are; when to use it
        "01_cpu": (0, "nothing", "the model is small: nothing else is faster here"),
        "02_single_gpu": (64 * (784 + 8), "images and labels, to the GPU",
                          "the model and a batch fit on one GPU"),
        "03_dp": (2 * whole, "weights to the other GPU; its gradients back",
                  "not any more: stage 4 does it better"),
        "04_ddp": (moved("ddp", 2, whole), "all-reduce of the gradients",
                   "the model fits, training takes too long"),
        "05_ddp_inference": (moved("ddp", 2, whole), "the same",
                             "evaluation takes long as well"),
        "06_model_parallel": (2 * border, "activations; their gradients back",
                              "it fits on no single GPU, but on two"),
        "07_fsdp": (moved("fsdp", 2, whole), "weights twice, gradients once",
                    "weights and optimizer do not fit, each layer does"),
        "08_tensor_parallel": (moved("ddp", 2, outputs), "all-reduce of 640 outputs",
                               "a layer does not fit; fast connections"),
        "09_pipeline": (border, "activations, or their gradients back",
                        "slow connections; many micro-batches"),
        "10_hybrid": (moved("fsdp", 2, pair) + moved("ddp", 2, outputs / 2),
                      "as 7 in a column, as 8 in a row", "very many GPUs"),
    }  # fmt: skip
    rows = []
    for stage, (size, what, use) in says.items():
        number = CPU_PROCESSES.get(stage, 1)
        ranks = [held(stage, HIDDEN, rank).values() for rank in range(number)]
        cells = [" and ".join(dict.fromkeys(f"{size:,}" for size in column))
                 for column in zip(*[(p, p + g + adam) for p, g, _, adam in ranks],
                                   strict=True)]  # fmt: skip
        rows.append([f"`{stage}`", PARTS.get(stage, "all"), *cells, f"{size:,.0f}",
                     what, use])  # fmt: skip
    headings = ["stage", "of the model on a rank", "bytes of parameters",
                "with gradients and Adam", "bytes sent", "what", "use it when"]  # fmt: skip
    return table("llrrrll", headings, rows)


def main():
    os.chdir(ROOT)
    out, args = Path(os.environ.get("OUT") or "runs"), os.environ.get("ARGS", "")
    given = re.fullmatch(r"\s*(?:--hidden[= ]([1-9]\d*))?\s*", args)
    if not given:
        refuse(f"ARGS={args!r}: memory takes the width alone: ARGS='--hidden 2048'")
    hidden = int(given[1] or HIDDEN)
    take_gpus()
    model, found = gradient_bytes(hidden), {}
    print(f"Bytes after a step; the model has {model:,}, {hidden} wide.\n")
    names = [*KINDS, "layer", *["peak"] * bool(launch.count_gpus())]
    headings = "".join(f"{name:>12}" for name in names)
    print(f"{'stage':19}{'rank'}{headings}  of the model")
    for stage in MEASURED:
        found[stage] = measure(stage, hidden)
        for rank, sizes in enumerate(found[stage]):
            numbers = "".join(f"{sizes[name]:12,}" for name in names)
            share = sizes["parameters"] / model
            print(f"{stage:19}{rank:4}{numbers}{share:9.2%}  {PARTS.get(stage, 'all')}")
            expected = held(stage, hidden, rank)
            if expected.items() - sizes.items():
                refuse(f"{stage}, rank {rank}: by the formula it is {expected}")
    print("\nAs by the formula: a rank holds 2 times its part of the model, 3 times with "
          "momentum, 4 with Adam and its counts.")  # fmt: skip
    for stage, other in SAME_AS.items():
        print(f"{stage} holds what {other} holds.")
    out.mkdir(parents=True, exist_ok=True)
    draw_memory(found, out / "memory.png")
    print(f"wrote {shown(out / 'memory.png')}")


if __name__ == "__main__":
    main()
