"""Promise: the lines of stages 04 and 07 work in a program that is not MNIST's.

The lines come from the scripts themselves, so this is what a reader would copy.
"""

import re
from functools import partial
from pathlib import Path

import pytest

from conftest import run, weights
from tools.run.stages import load_file, script

PROGRAM = Path(__file__).with_name("realistic.py")
SIZE = 256, 101
START = "    turn = "
EVALUATION = "        correct, total = evaluate(model, test)\n"
PRINT = '        print(f"epoch {epoch}  loss {loss:.6f}  test {correct}/{total}")\n'
GUARD = "        if rank == 0:\n"
SAVE = '    save(model, args.out / "model.pth")\n'
END = "    main(parse_args())\n"
# Not copied: every rank says which learning rate it has at the end.
RATES = "    print(f\"rank {rank} at {optimizer.param_groups[0]['lr']:.6f}\")\n"


def lines(stage, first, last=None):
    """Return a script's lines, from the one that begins so to before `last`."""
    text = script(stage).read_text()
    assert text.count(f"\n{first}") == 1, f"{stage}: {first}"
    rest = text[text.index(f"\n{first}") + 1 :]
    end = rest.index(f"\n{last}" if last else "\n")
    return rest[: end + 1]


def indented(text):
    return re.sub("^(?=.)", "    ", text, flags=re.MULTILINE)


def replace(text, old, new):
    assert text.count(old) == 1, old
    return text.replace(old, new)


def with_ddp(text):
    """Return the program with what stage 04 has."""
    copied = partial(lines, "04_ddp")
    text = replace(text, "import argparse\n", "import argparse\n" + copied("import os"))
    dist = copied("import torch.distributed")
    text = replace(text, "import torch\n", "import torch\n" + dist)
    text = replace(text, "Dataset, RandomSampler", "Dataset, DistributedSampler")
    result = "    return (loss_sum / count).item()\n"
    totals = copied("    totals = ", "    return (loss_sum")
    text = replace(text, result, totals + result)
    processes = copied('    if "RANK" not in', "    # The data")
    text = replace(text, START, processes + START)
    sampler = "    sampler = RandomSampler(train, generator=torch.Generator())\n"
    text = replace(text, sampler, copied("    sampler = "))
    text = replace(text, "args.batch_size, s", "args.batch_size // world_size, s")
    model = "    model = Net().to(DEVICE)\n"
    text = replace(text, model, model + copied("    ddp_model = "))
    seed = "        sampler.generator.manual_seed(args.seed + epoch)\n"
    text = replace(text, seed, copied("        sampler.set_epoch"))
    loss = "        loss = train_epoch(model, loader, optimizer)\n"
    text = replace(text, loss, copied("        loss = train_epoch"))
    assert GUARD in script("04_ddp").read_text()
    text = replace(text, EVALUATION + PRINT, GUARD + indented(EVALUATION + PRINT))
    text = replace(text, SAVE, "    if rank == 0:\n" + indented(SAVE))
    parsed = "    return parser"
    text = replace(text, parsed, copied("    backend = ", parsed) + parsed)
    return replace(text, END, END + copied("    dist.destroy_process_group"))


def with_fsdp(text):
    """Return the program with what stage 07 has, from the one with DDP."""
    copied = partial(lines, "07_fsdp")
    imports = copied("import torch.distributed.checkpoint.state_dict")
    imports += "from torch import nn\n" + copied("from torch.distributed.fsdp")
    text = replace(text, "from torch import nn\n", imports)
    batches = "    for images, labels in DataLoader(dataset, batch_size=1000):\n"
    counted = "    # A forward pass"
    text = replace(text, batches, copied(counted, "        images, labels = images"))
    counts = copied("    counts = ", "\n")
    text = replace(text, "    return correct, len(dataset)\n", counts)
    saving = copied("def save", "def main")
    start = text.index("def save")
    text = text[:start] + saving + text[text.index("def main") :]
    shard = copied("    shard = ")
    text = replace(text, "    sampler = ", shard + "    sampler = ")
    mesh = copied("    mesh = ")
    mesh += "    for module in (*model.blocks, model):\n"  # its own layers
    mesh += copied("        fully_shard")
    text = replace(text, lines("04_ddp", "    ddp_model = "), mesh)
    loss = copied("        loss = train_epoch")
    text = replace(text, lines("04_ddp", "        loss = train_epoch"), loss)
    guarded = GUARD + indented(EVALUATION + PRINT)
    evaluated = copied("        correct, total = evaluate")
    text = replace(text, guarded, evaluated + GUARD + indented(PRINT))
    text = replace(text, "    if rank == 0:\n" + indented(SAVE), SAVE)
    return replace(text, END, END + copied("    dist.barrier"))


@pytest.mark.parametrize("changes", [(), (with_ddp,), (with_ddp, with_fsdp)])
def test_the_lines_can_be_copied(changes, data, tmp_path):
    text = PROGRAM.read_text()
    for change in changes:
        text = change(text)
    saved = text.rindex("    if rank == 0:\n" if changes == (with_ddp,) else SAVE)
    rates = RATES if changes else ""
    path = tmp_path / "program.py"
    path.write_text(text[:saved] + rates + text[saved:])
    stage = "04_ddp" if changes else "01_cpu"  # two ranks, or one process
    result = run(stage, "--data", data(SIZE), "--out", tmp_path, path=path)
    assert result.returncode == 0, result.stderr
    losses = re.findall(r"epoch \d  loss (\d\.\d+)  test \d+/101", result.stdout)
    assert len(losses) == 2
    assert float(losses[1]) < float(losses[0])
    if changes:  # after both epochs of the cosine, on every rank
        found = re.findall(r"rank (\d) at (\S{8})", result.stdout)
        assert sorted(found) == [("0", "0.000000"), ("1", "0.000000")]
    model = load_file("realistic", PROGRAM).Net()
    model.load_state_dict(weights(tmp_path), strict=True)
    assert model.blocks[0].norm.num_batches_tracked > 0
