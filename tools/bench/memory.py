"""The memory of each rank of each stage: `make memory ARGS="--hidden 2048"`.

Runs every stage for one step, in which hooks measure: bytes of parameters and of
gradients, then of the state that SGD with momentum and that Adam keep for them; and of
the largest layer while it computes. Two stages need what another one needs (SAME_AS),
and are not run. DDP's copy of the gradients in its buckets is not counted.
Writes runs/memory.png, or to OUT. GPUS=0,1 or cpu says on what; stages that cannot have
a GPU for each rank run on the CPU.
"""

import json
import os
import re
import tempfile
from pathlib import Path

from tools.bench.benchmark import take_gpus
from tools.bench.figures import draw_memory
from tools.bench.memory_rank import KINDS, measure_first_step
from tools.bench.predict import communication
from tools.bench.tables import table
from tools.run import gpus, ranks
from tools.run.data import shown
from tools.run.sample import cut
from tools.run.stages import CPU_PROCESSES, EVERY, ROOT, refuse, script

HIDDEN = 128
BATCH = 64
SAME_AS = {  # what they add, checkpoints, is not part of a step
    "11_resume": "05_ddp_inference",
    "12_sharded_checkpoint": "07_fsdp",
}
MEASURED = [stage for stage in EVERY.values() if stage not in SAME_AS]
PARTS = {  # of the model, on a rank; not given: all of it
    "07_fsdp": "half of each tensor",
    "08_tensor_parallel": "half of the hidden units",
    "09_pipeline": "a layer",
    "10_hybrid": "half of each tensor of half of the units",
}
GRIDS = {"07_fsdp": (2, 1), "08_tensor_parallel": (1, 2), "10_hybrid": (2, 2)}
SENT = {  # by a process, in a step
    "01_cpu": "nothing",
    "02_single_gpu": "images and labels, to the GPU",
    "03_dp": "weights to the other GPU; its gradients back",
    "04_ddp": "all-reduce of the gradients",
    "05_ddp_inference": "the same",
    "06_model_parallel": "activations; their gradients back",
    "07_fsdp": "weights twice, gradients once",
    "08_tensor_parallel": "all-reduce of 640 outputs",
    "09_pipeline": "activations, or their gradients back",
    "10_hybrid": "as 7 in a column, as 8 in a row",
}
USE_WHEN = {
    "01_cpu": "the model is small: nothing else is faster here",
    "02_single_gpu": "the model and a batch fit on one GPU",
    "03_dp": "not any more: stage 4 does it better",
    "04_ddp": "the model fits, training takes too long",
    "05_ddp_inference": "evaluation takes long as well",
    "06_model_parallel": "it fits on no single GPU, but on two",
    "07_fsdp": "weights and optimizer do not fit, each layer does",
    "08_tensor_parallel": "a layer does not fit; fast connections",
    "09_pipeline": "slow connections; many micro-batches",
    "10_hybrid": "very many GPUs",
}


def model_bytes(hidden):
    """Return the bytes of the network's weights, in float32."""
    return 4 * (785 * hidden + (hidden + 1) * 10)


def shard(number, ranks, rank):
    """Return how many of `number` rows a rank gets, by the rule of torch.chunk."""
    size = -(-number // ranks)
    return max(0, min(size, number - rank * size))


def formula(stage, hidden, rank):
    """Return the memory of a rank as {kind: bytes}, in float32.

    Tensor parallelism shards the hidden units, but not the last layer's bias; FSDP
    shards the rows of what is left, in stage 10 among the ranks of a column. Adam also
    counts the steps, in 4 bytes for each tensor.
    """
    rows, columns = GRIDS.get(stage, (1, 1))
    row, column = divmod(rank % (rows * columns), columns)
    units = shard(hidden, columns, column)
    layers = [785 * shard(units, rows, row), (units + 1) * shard(10, rows, row)]
    if stage == "09_pipeline":
        layers = [layers[rank]]
    size = 4 * sum(layers)
    return dict(zip(KINDS, [size, size, size, 2 * size + 8 * len(layers)], strict=True))


def sent_bytes(stage):
    """Return how many bytes a process of a stage sends in a step, by formula."""
    whole = model_bytes(HIDDEN)
    activations = 4 * BATCH * HIDDEN
    outputs = 4 * BATCH * 10
    if stage == "10_hybrid":
        column = formula("08_tensor_parallel", HIDDEN, 0)["parameters"]
        shards = communication("fsdp", 2, column)
        return shards + communication("ddp", 2, outputs / 2)
    return {
        "01_cpu": 0,
        "02_single_gpu": BATCH * (784 + 8),
        "03_dp": 2 * whole,
        "04_ddp": communication("ddp", 2, whole),
        "05_ddp_inference": communication("ddp", 2, whole),
        "06_model_parallel": 2 * activations,
        "07_fsdp": communication("fsdp", 2, whole),
        "08_tensor_parallel": communication("ddp", 2, outputs),
        "09_pipeline": activations,
    }[stage]


def overview():
    """Return a table of MEASURED: memory of a rank, what it sends, when to use it.

    By formulas: the memory is tested against `measure`, the messages by tests/beyond.
    """
    rows = []
    for stage in MEASURED:
        parameters = []
        totals = []
        for rank in range(CPU_PROCESSES.get(stage, 1)):
            sizes = formula(stage, HIDDEN, rank)
            parameters.append(f"{sizes['parameters']:,}")
            total = sizes["parameters"] + sizes["gradients"] + sizes["Adam"]
            totals.append(f"{total:,}")
        cells = [" and ".join(dict.fromkeys(sizes)) for sizes in (parameters, totals)]
        sent = [f"{sent_bytes(stage):,.0f}", SENT[stage], USE_WHEN[stage]]
        rows.append([f"`{stage}`", PARTS.get(stage, "all"), *cells, *sent])
    headings = ["stage", "of the model on a rank", "bytes of parameters"]
    headings += ["with gradients and Adam", "bytes sent", "what", "use it when"]
    return table("llrrrll", headings, rows)


def measure(stage, hidden):
    """Return the memory of each rank of a stage in a step: a list of {kind: bytes}."""
    number = CPU_PROCESSES.get(stage, 0)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        words = [script(stage), "--data", cut(folder / "data", BATCH, 10)]
        words += ["--out", folder, "--hidden", hidden]
        on_gpus = gpus.count_gpus() >= max(number, 1)
        prepare = measure_first_step, folder
        result = ranks.run(words, number, prepare=prepare, gpus=on_gpus)
        files = [folder / f"{rank}.json" for rank in range(number or 1)]
        if result.returncode or not all(file.exists() for file in files):
            refuse(f"{stage} failed:\n{result.stderr[-2000:]}")
        return [json.loads(file.read_text()) for file in files]


def measure_all(hidden):
    """Measure every stage and print its bytes; return {stage: what `measure` returns}.

    Ends the program where they are not those of the formula.
    """
    whole = model_bytes(hidden)
    print(f"Bytes after a step; the model has {whole:,}, {hidden} wide.\n")
    names = [*KINDS, "layer"]
    headings = "".join(f"{name:>12}" for name in names)
    print(f"{'stage':19}{'rank'}{headings}  of the model")
    found = {}
    for stage in MEASURED:
        found[stage] = measure(stage, hidden)
        for rank, sizes in enumerate(found[stage]):
            numbers = "".join(f"{sizes[name]:12,}" for name in names)
            share = f"{sizes['parameters'] / whole:9.2%}"
            print(f"{stage:19}{rank:4}{numbers}{share}  {PARTS.get(stage, 'all')}")
            expected = formula(stage, hidden, rank)
            if expected.items() - sizes.items():
                refuse(f"{stage}, rank {rank}: by the formula it is {expected}")
    return found


def main():
    os.chdir(ROOT)
    out = Path(os.environ.get("OUT") or "runs")
    arguments = os.environ.get("ARGS", "")
    given = re.fullmatch(r"\s*(?:--hidden[= ]([1-9]\d*))?\s*", arguments)
    if not given:
        usage = "memory takes the width alone: ARGS='--hidden 2048'"
        refuse(f"ARGS={arguments!r}: {usage}")
    take_gpus()
    found = measure_all(int(given[1] or HIDDEN))
    print(
        "\nThese are the bytes of the formulas: 2 times the rank's part of the model, "
        "3 times with momentum, 4 with Adam and its counts."
    )
    for stage, other in SAME_AS.items():
        print(f"{stage} needs what {other} needs.")
    out.mkdir(parents=True, exist_ok=True)
    draw_memory(found, out / "memory.png")
    print(f"wrote {shown(out / 'memory.png')}")


if __name__ == "__main__":
    main()
