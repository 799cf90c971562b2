"""Generated parts that change a stage: their diffs, and what their scripts print."""

import tempfile
from pathlib import Path

from tools.lab.exercise import patched
from tools.pages.hangs import edited
from tools.run import compare, ranks
from tools.run.stages import CPU_PROCESSES, ROOT, refuse, script

VARIANTS = ROOT / "tests" / "beyond" / "variants"  # a patch for each variant
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)"
# What a learner may leave out of a stage: its name, and the edits of the script that do
# it, as (the text, what stands there instead).
LEFT_OUT = {
    "04_ddp": {
        "DistributedSampler": [  # as one rank of one: it takes all images
            ("DistributedSampler(train, seed", "DistributedSampler(train, 1, 0, seed"),
        ],
        "// world_size": [("args.batch_size // world_size", "args.batch_size")],
        "the wrapper": [("nn.parallel.DistributedDataParallel(model)", "model")],
        "all_reduce": [("    dist.all_reduce(totals)", "    #")],
        "set_epoch": [("        sampler.set_epoch(epoch)", "        #")],
    },
    "07_fsdp": {
        "the right order": [  # the optimizer comes before fully_shard
            ("    mesh = dist", f"    {SGD}\n    mesh = dist"),
            (f"    {SGD}\n    sizes", "    sizes"),
        ],
        "sharded layers": [("(model.layers[1], model.layers[3], model)", "(model,)")],
    },
    "08_tensor_parallel": {
        "equal images": [  # the sampler of stage 7
            (
                "RandomSampler(train, generator=torch.Generator())",
                "torch.utils.data.DistributedSampler(train, seed=args.seed)",
            ),
            ("args.batch_size, drop_last", "args.batch_size // world_size, drop_last"),
            ("generator.manual_seed(args.seed + epoch)", "set_epoch(epoch)"),
        ],
    },
    "09_pipeline": {
        "the batch's size": [("(loss / len(labels))", "(loss / len(target))")],
        "broadcast": [("    dist.broadcast(loss_sum, 1)", "    #")],
    },
    "10_hybrid": {
        "pairs": [  # the sampler of stage 7
            ("DistributedSampler(train, pairs, pair,", "DistributedSampler(train,"),
            ("args.batch_size // pairs", "args.batch_size // world_size"),
        ],
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
    rows = ["```console", f"{'':18}  epoch 1   epoch 2   epoch 3"]
    shown = []
    for word in words:
        name, _, number = word.partition("=")
        stage = variant_stage(name)
        processes = CPU_PROCESSES.get(stage)
        text = script(stage).read_text()
        if stage not in shown:
            shown.append(stage)
            rows.append(losses(stage, text, processes))
        text = patched(text, VARIANTS / f"{name}.patch", stage)
        rows.append(losses(name, text, int(number) if number else processes))
    return "\n".join([*rows, "```"])


def without(stage, name):
    """Return the script of a stage without what LEFT_OUT names."""
    return edited(script(stage).read_text(), dict(LEFT_OUT[stage][name]))


def left_out(stage):
    """Return the losses of a stage, and of the same script without one change each."""
    processes = CPU_PROCESSES[stage]
    rows = ["```console", f"{'without':18}  epoch 1   epoch 2   epoch 3"]
    rows.append(losses("(nothing left out)", script(stage).read_text(), processes))
    for name in LEFT_OUT[stage]:
        rows.append(losses(name, without(stage, name), processes))
    return "\n".join([*rows, "```"])
