"""Write the generated parts of the pages anew: `python -m tools.pages.blocks`.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`. NAME is a
key of BLOCKS, followed by arguments: `printed 04_ddp`. Hunks have a title, too, and one
part may show several: `hunk 03_dp 04_ddp 1 2 | Import what is new`. What follows a part
with hunks is their reason, up to the next part or heading or the end of a fold
(`</details>`). Reasons are kept in the pages and nowhere else.
"""

import functools
import math
import os
import re
import subprocess
import tempfile
from itertools import pairwise
from typing import NamedTuple

from tools.bench import predict
from tools.bench.tables import published, report, table
from tools.lab.exercise import along_the_path
from tools.lab.path import PARTS
from tools.pages.essence import essence
from tools.pages.hangs import hang, hello
from tools.pages.inspected import inspected
from tools.pages.own_script import own_curves
from tools.pages.symptoms import symptoms_by_kind
from tools.pages.variants import left_out, variant, variants
from tools.run import diffs
from tools.run.stages import (
    BEYOND,
    EVERY,
    OWN,
    ROOT,
    TARGETS,
    folder,
    previous,
    refuse,
    script,
)

PAGES = ["README.md", "SCALING.md", "SYMPTOMS.md", "CONTRIBUTING.md"]
PAGES += ["exercises/README.md", "beyond/README.md"]
PAGES += ["beyond/own_script/README.md", "04_ddp/HANGS.md"]
PAGES += [f"{folder(stage).relative_to(ROOT)}/README.md" for stage in EVERY.values()]
PART = re.compile(r"<!-- generated: (.+?) -->\n(.*?)<!-- end -->", re.DOTALL)
REASON = re.compile(
    r"<!-- generated: hunk (\S+) (\S+) ([\d ]+) \| (.+?) -->\n.*?<!-- end -->\n"
    r"(.*?)(?=^<!-- generated|^##+ |^</details>|\Z)",
    re.DOTALL | re.MULTILINE,
)
SPEEDUP = """![How many times as fast as one process two are, against the batch: a line
with ranges for each width. Narrow networks with small batches are below 1, wide ones
with large batches well above](tools/pages/svg/speedup.svg)"""
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?")

ON_SAMPLE = (
    "*On `data/sample`. All of MNIST gives another curve, the same for every stage.*"
)

# What each stage teaches, as the tables of the pages say it.
LESSONS = {
    "01_cpu": "the script itself: one process, on the CPU",
    "02_single_gpu": "moving the model and each batch to the GPU",
    "03_dp": "`nn.DataParallel`: one process drives several GPUs",
    "04_ddp": "`DistributedDataParallel`: one process per GPU, on one or more machines",
    "05_ddp_inference": "evaluating on every rank, with exact counts",
    "06_model_parallel": "one model split between two GPUs",
    "07_fsdp": "fully sharded: each rank keeps 1/*W* of every tensor",
    "08_tensor_parallel": (
        "each rank computes a part of every layer, for the same images"
    ),
    "09_pipeline": "each rank has some of the layers; micro-batches keep both busy",
    "10_hybrid": "a grid of ranks: tensor parallel in a row, fully sharded in a column",
    "11_resume": "continuing a stopped run after its last finished epoch",
    "12_sharded_checkpoint": (
        "each rank saves its own part; any number of ranks can load it"
    ),
}
# The address where the site is published, with a slash at its end. While it is empty,
# no page links there. After a change: make docs.
SITE = ""


def stages(targets=TARGETS):
    """Return the table of the six stages, or of those beyond."""
    rows = []
    for target, stage in targets.items():
        length = len(script(stage).read_text().splitlines())
        before = previous(stage)
        changed = "–"
        if before:
            changed = f"{diffs.changed_lines(before, stage)} from {before[:2]}"
        name = f"[`{stage}`]({stage}/README.md)"
        rows.append([name, f"`make {target}`", LESSONS[stage], length, changed])
    headings = ["stage", "run it", "what it teaches", "lines", "changed"]
    return table("lllll", headings, rows)


@functools.cache
def output(target):
    """Return what `make all` or `beyond` prints without a GPU, on the sample."""
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
    for name in "OMP_NUM_THREADS", "MAKEFLAGS", "MAKELEVEL", "ARGS", "GPUS", "NPROC":
        environment.pop(name, None)
    with tempfile.TemporaryDirectory() as out:
        words = ["make", target, "DATA=data/sample", f"OUT={out}"]
        result = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True
        )
    if result.returncode:
        refuse(f"make {target} failed, so the pages cannot show it:\n{result.stderr}")
    text = result.stdout.replace(out, "runs").strip()
    return f"```console\n$ make {target} DATA=data/sample\n{text}\n```\n\n{ON_SAMPLE}"


def verdict(target):
    """Return the end of `output`: the table of all curves, and whether they are one."""
    *_, table, on_sample = output(target).split("\n\n")
    command = f"$ make {target} DATA=data/sample"
    return f"```console\n{command}\n…\n{table}\n\n{on_sample}"


def printed(stage):
    """Return what a stage printed in the run of `output`, with its command."""
    runs = output("all" if stage in TARGETS.values() else "beyond").split("\n\n")
    (run,) = [part for part in runs if f"{stage}/mnist.py --data" in part]
    return f"```console\n{run[run.index('$ OMP') :]}\n```\n\n{ON_SAMPLE}"


def hunk(a, b, *numbers, title):
    """Return hunks of a diff under one heading; `04_ddp.3` links to the third."""
    found = diffs.hunks(a, b)
    shown = [f'<a id="{b}.{number}"></a>' for number in numbers]
    shown += ["", f"### {title}", "", "```diff"]
    for number in numbers:
        shown += found[int(number) - 1].text
    shown.append("```")
    if SITE:
        view = f"{SITE}side_by_side.html#{a}-{b}.{numbers[0]}"
        shown += ["", f"[See it side by side]({view})"]
    return "\n".join(shown)


class Reason(NamedTuple):
    """Why a hunk is there: the heading it stands under, and the text below it."""

    title: str
    text: str  # Markdown


def reasons(a, b):
    """Return the Reason of each hunk of the diff from `a` to `b`, in the diff's order.

    They stand in the page of `b`, in any order. Raises SystemExit where the page does
    not have each hunk of the diff once.
    """
    text = (folder(b) / "README.md").read_text()
    numbers = []
    found = {}
    for part in REASON.finditer(text):
        if part.groups()[:2] == (a, b):
            for number in map(int, part[3].split()):
                numbers.append(number)
                found[number] = Reason(part[4], part[5].strip())
    needed = list(range(1, len(diffs.hunks(a, b)) + 1))
    if sorted(numbers) != needed:
        refuse(
            f"{b}/README.md explains the hunks {numbers} of the diff from {a}, which "
            f"has {len(needed)}: put each hunk N once into a part "
            f"<!-- generated: hunk {a} {b} N | TITLE -->, its reason below it, "
            "then run: make docs"
        )
    return [found[number] for number in needed]


def exercises():
    """Return the tables of the exercises, one for each part of the path."""
    headings = ["", "exercise", "stage", "builds on", "minutes"]
    rows = {part: [] for part in PARTS}
    for one in along_the_path():
        link = f"[{one.title}]({one.name}.md)"
        after = ", ".join(one.after)
        rows[one.part].append([one.number, link, f"`{one.stage}`", after, one.minutes])
    tables = []
    for part, title in PARTS.items():
        body = table("llllr", headings, rows[part])
        tables.append(f"**Part {part}. {title}**\n\n{body}")
    return "\n\n".join(tables)


BLOCKS = {
    "bench": lambda: report(published(), SPEEDUP),
    "prediction": predict.prediction,
    "stages": stages,
    "beyond": lambda: stages(BEYOND),
    "output": output,
    "printed": printed,
    "verdict": verdict,
    "essence": essence,
    "hunk": hunk,
    "own_curves": own_curves,
    "exercises": exercises,
    "symptoms": symptoms_by_kind,
    "variant": variant,
    "variants": variants,
    "left_out": left_out,
    "hello": hello,
    "hang": hang,
    "inspected": inspected,
}


def make(name):
    """Return the text of a generated part. Raises KeyError where there is none such."""
    words, _, title = name.partition(" | ")
    key, *arguments = words.split()
    if title:
        return BLOCKS[key](*arguments, title=title)
    return BLOCKS[key](*arguments)


def same(old, new):
    """Return whether two generated texts say the same.

    Tables and diffs must be equal. In what a run printed, the words must be, and the
    numbers up to what differs from one machine to another: seconds and threads do not
    count, others may be off by 1 % (float32 sums depend on the processor).
    """
    if "```console" not in new:
        return old == new
    varies = r"\d+\.\d+ s$|OMP_NUM_THREADS=\d+|\(\de-\d+\)| to rounding| +"
    old, new = (re.sub(varies, " ", text, flags=re.MULTILINE) for text in (old, new))
    if NUMBER.sub("#", old) != NUMBER.sub("#", new):
        return False
    pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=0.01) for a, b in pairs)


def write():
    """Write every generated part of every page anew, and say which were stale."""
    for a, b in [*diffs.EXPLAINED, *pairwise(OWN)]:
        reasons(a, b)
    count = 0
    for page in PAGES:
        path = ROOT / page
        for part in PART.finditer(path.read_text()):
            name, old = part.groups()
            if name.split()[0] not in BLOCKS:
                refuse(f"{page}: tools/pages/blocks.py makes no part {name!r}")
            new = make(name)
            count += 1
            if not same(old.strip(), new):
                print(f"{page}: {name} was stale", flush=True)
                fresh = f"<!-- generated: {name} -->\n{new}\n<!-- end -->"
                text = path.read_text()  # someone may write the page meanwhile
                path.write_text(text.replace(part[0], fresh))
    print(f"{count} generated parts are fresh")


if __name__ == "__main__":
    write()
