"""Generated parts that change a stage: their diffs, and what their scripts print."""

import tempfile
from pathlib import Path

from tools.lab.exercise import patched
from tools.pages.hangs import edited
from tools.run import compare, ranks
from tools.run.stages import CPU_PROCESSES, ROOT, refuse, script

VARIANTS = ROOT / "tests" / "beyond" / "variants"  # a patch for each variant
HEADING = "{:18}  epoch 1   epoch 2   epoch 3"
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)"
# What a learner may leave out of a stage: its name, and the edits of the script that do
# it, the text -> what stands there instead.
LEFT_OUT = {
    "04_ddp": {
        # as one rank of one, it takes all images
        "DistributedSampler": {
            "DistributedSampler(train, seed": "DistributedSampler(train, 1, 0, seed"
        },
        "// world_size": {"args.batch_size // world_size": "args.batch_size"},
        "the wrapper": {"nn.parallel.DistributedDataParallel(model)": "model"},
        "all_reduce": {"    dist.all_reduce(totals)": "    #"},
        "set_epoch": {"        sampler.set_epoch(epoch)": "        #"},
    },
    "07_fsdp": {
        # the optimizer comes before fully_shard
        "the right order": {
            "    mesh = dist": f"    {SGD}\n    mesh = dist",
            f"    {SGD}\n    sizes": "    sizes",
        },
        "sharded layers": {"(model.layers[1], model.layers[3], model)": "(model,)"},
    },
    "08_tensor_parallel": {
        # the sampler of stage 7
        "equal images": {
            "    loader = DataLoader(train, args.batch_size, shuffle=True)": (
                "    sampler = torch.utils.data.DistributedSampler(train)\n"
                "    share = args.batch_size // world_size\n"
                "    loader = DataLoader(train, share, sampler=sampler)"
            ),
            "loader.sampler.generator = torch.Generator().manual_seed(args.seed + epoch)": (
                "sampler.set_epoch(epoch)"
            ),
        },
    },
    "09_pipeline": {
        "the batch's size": {"(loss / len(labels))": "(loss / len(target))"},
        "broadcast": {"    dist.broadcast(loss_sum, 1)": "    #"},
    },
    "10_hybrid": {
        # the sampler of stage 7
        "pairs": {
            "DistributedSampler(train, pairs, pair,": "DistributedSampler(train,",
            "args.batch_size // pairs": "args.batch_size // world_size",
        },
    },
}


def variant(name):
    """Return the diff from a stage to the variant."""
    text = (VARIANTS / f"{name}.patch").read_text()
    return f"```diff\n{text[text.index('@@') :].rstrip()}\n```"


def variant_stage(name):
    """Return the stage that a variant changes: its patch names it in the first line."""
    first = (VARIANTS / f"{name}.patch").read_text().splitlines()[0]
    return first.removeprefix("--- ").removesuffix("/mnist.py")


def losses(name, text, processes):
    """Return a line with the losses of a script, run on the CPU, on the sample."""
    with tempfile.TemporaryDirectory() as out:
        path = Path(out) / "mnist.py"
        path.write_text(text)
        words = [path, "--data", "data/sample", "--out", out]
        result = ranks.run(words, processes, timeout=300)
        if result.returncode:
            refuse(f"{name} failed:\n{result.stderr}")
        curve = compare.read(Path(out) / "metrics.csv")
    numbers = [f"{loss:.6f}" for loss, *_ in curve]
    return "  ".join([f"{name:18}", *numbers])


def variants(*words):
    """Return the losses of variants, and before them those of the stages they change.

    A word is a variant, or one with its number of processes: `hsdp=4`.
    """
    rows = {}  # a stage or a variant -> its losses
    for word in words:
        name, _, number = word.partition("=")
        stage = variant_stage(name)
        text = script(stage).read_text()
        processes = CPU_PROCESSES.get(stage)
        if stage not in rows:
            rows[stage] = losses(stage, text, processes)
        if number:
            processes = int(number)
        changed = patched(text, VARIANTS / f"{name}.patch", stage)
        rows[name] = losses(name, changed, processes)
    return "\n".join(["```console", HEADING.format(""), *rows.values(), "```"])


def left_out(stage):
    """Return the losses of a stage, and of the same script without one change each."""
    processes = CPU_PROCESSES[stage]
    text = script(stage).read_text()
    rows = [HEADING.format("without")]
    rows.append(losses("(nothing left out)", text, processes))
    for name, edits in LEFT_OUT[stage].items():
        rows.append(losses(name, edited(text, edits), processes))
    return "\n".join(["```console", *rows, "```"])
