"""Generated parts that run scripts: variants, hello.py and its like, own scripts."""

import re
import tempfile
from pathlib import Path

from tools.lab import fake_cuda
from tools.lab.exercise import patched
from tools.pages import outcomes
from tools.run import compare, ranks
from tools.run.stages import CPU_PROCESSES, OWN, ROOT, refuse, script

VARIANTS = ROOT / "tests" / "beyond" / "variants"  # a patch for each variant
HELLO = ROOT / "04_ddp" / "hello.py"
GATHERED = ROOT / "03_dp" / "gathered.py"
IN_ORDER = ROOT / "05_ddp_inference" / "in_order.py"
NOTHING = "(nothing left out)"
HEADING = "{:18}  epoch 1   epoch 2   epoch 3"
# The own scripts: their processes, and in which settings the page compares them.
PROCESSES = {"before": None, "after_ddp": 2, "after_fsdp": 2}
NOT_RANDOM = ["--dropout", "0", "--no-augment"]
SETTINGS = {
    "GroupNorm, no dropout, no augmentation": ["--norm", "group", *NOT_RANDOM],
    "BatchNorm, no dropout, no augmentation": NOT_RANDOM,
    "BatchNorm, dropout, augmentation": [],
}


def console(*lines):
    """Return lines of output as Markdown."""
    return "\n".join(["```console", *lines, "```"])


def run(name, words, processes, **options):
    """Run a script on the CPU; return its result. Raises SystemExit where it fails."""
    result = ranks.run(words, processes, timeout=300, **options)
    if result.returncode:
        refuse(f"{name} failed, so its page cannot show it:\n{result.stderr}")
    return result


def losses(name, text, processes):
    """Return a line with the losses of a script, a text, run on the sample."""
    with tempfile.TemporaryDirectory() as out:
        path = Path(out) / "mnist.py"
        path.write_text(text)
        run(name, [path, "--data", "data/sample", "--out", out], processes)
        curve = compare.read(Path(out) / "metrics.csv")
    numbers = [f"{loss:.6f}" for loss, *_ in curve]
    return "  ".join([f"{name:18}", *numbers])


def hello():
    """Return hello.py and what its two ranks print."""
    code = f"```python\n{HELLO.read_text()}```\n\n"
    printed = run("hello.py", [HELLO], 2).stdout.splitlines()
    command = "$ OMP_NUM_THREADS=1 .venv/bin/torchrun --standalone --nproc-per-node=2"
    return code + console(f"{command} 04_ddp/hello.py", *sorted(printed))


def two_gpus(rank):
    """Have a rank believe in two GPUs."""
    fake_cuda.two_gpus(lambda *_, **__: None)


def gathered():
    """Return gathered.py and what it prints on two fake GPUs."""
    code = f"```python\n{GATHERED.read_text()}```\n\n"
    printed = run("gathered.py", [GATHERED], None, prepare=(two_gpus,)).stdout
    command = "$ .venv/bin/python 03_dp/gathered.py"
    return code + console(command, *printed.splitlines())


def in_order():
    """Return in_order.py and what rank 0 of three prints."""
    code = f"```python\n{IN_ORDER.read_text()}```\n\n"
    printed = run("in_order.py", [IN_ORDER], 3).stdout.splitlines()
    command = "$ OMP_NUM_THREADS=1 .venv/bin/torchrun --standalone --nproc-per-node=3"
    return code + console(f"{command} 05_ddp_inference/in_order.py", *printed)


def variant(name):
    """Return the diff from a stage to the variant."""
    text = (VARIANTS / f"{name}.patch").read_text()
    return f"```diff\n{text[text.index('@@') :].rstrip()}\n```"


def variant_stage(name):
    """Return the stage that a variant changes: its patch names it in the first line."""
    first = (VARIANTS / f"{name}.patch").read_text().splitlines()[0]
    return first.removeprefix("--- ").removesuffix("/mnist.py")


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
    return console(HEADING.format(""), *rows.values())


def left_out(stage):
    """Return the losses of a stage, and of the same script without one change each."""
    rows = []
    for name, numbers in outcomes.left_out(stage).items():
        losses = [f"{loss:.6f}" for loss in numbers]
        rows.append("  ".join([f"{name or NOTHING:18}", *losses]))
    return console(HEADING.format("without"), *rows)


def own_curve(name, title):
    """Return a line with the losses of an own script in a setting, in float64."""
    with tempfile.TemporaryDirectory() as out:
        words = [script(name), "--out", out, *SETTINGS[title]]
        printed = run(name, words, PROCESSES[name], float64=True).stdout
    found = re.findall(r"loss (\S+)", printed)
    count = re.findall(r"test (\S+)", printed)[-1]
    return "  ".join([f"{name:38}", *found, f"test {count}"])


def own_curves():
    """Return the losses of each own script in each setting."""
    rows = []
    for title in SETTINGS:
        rows.append(f"{title:40}epoch 1   epoch 2   epoch 3")
        rows += [own_curve(name, title) for name in OWN]
    return console(*rows)
