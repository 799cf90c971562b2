"""Write the generated parts of the pages anew: `python -m tools.docs`.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`; NAME is a
key of BLOCKS. `stale` finds the parts that no longer are what their command writes.
"""

import os
import re
import subprocess
import sys
import tempfile

from tools import diffs
from tools.stages import ROOT, STAGES, TARGETS, previous, refuse, script

PAGES = ["README.md"]
PART = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?")

LESSONS = {
    "01_cpu": "the script itself: one process, on the CPU",
    "02_single_gpu": "the device; the model and each batch move there",
    "03_dp": "`nn.DataParallel`: one process, several GPUs",
    "04_ddp": "`DistributedDataParallel`: a process per GPU, on one machine or several",
    "05_ddp_inference": "evaluation on every rank, exact for any number of them",
    "06_model_parallel": "one model on two GPUs",
}


def stages():
    """Return the table of the stages."""
    lines = [
        "| stage | run it | what it teaches | lines | changed |",
        "|---|---|---|---|---|",
    ]
    for target, stage in TARGETS.items():
        length = len(script(stage).read_text().splitlines())
        before = previous(stage)
        changed = diffs.changed_lines(before, stage) if before else "–"
        if stage == "06_model_parallel":
            changed = (
                f"{changed} ({diffs.changed_lines('02_single_gpu', stage)} from 02)"
            )
        lines.append(
            f"| [`{stage}`]({stage}/README.md) | `make {target}` | {LESSONS[stage]} "
            f"| {length} | {changed} |"
        )
    return "\n".join(lines)


def output():
    """Return what `make all` prints on a machine without a GPU, on the sample."""
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
    for name in "OMP_NUM_THREADS", "MAKEFLAGS", "MAKELEVEL", "ARGS", "GPUS", "NPROC":
        environment.pop(name, None)
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(
            ["make", "all", "DATA=data/sample", f"OUT={folder}"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment,
        )
    if result.returncode:
        refuse(f"make all failed, so the pages cannot show it:\n{result.stderr}")
    text = result.stdout.replace(folder, "runs").strip()
    return f"```console\n$ make all DATA=data/sample\n{text}\n```"


BLOCKS = {"stages": stages, "output": output}


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
    return all(a == b or abs(float(a) / float(b) - 1) < 0.01 for a, b in pairs)


def parts(page):
    """Return the generated parts of a page as a list of (name, text)."""
    text = (ROOT / page).read_text()
    return [
        (match[2], match[0].removeprefix(match[1]).removesuffix(match[3]).strip())
        for match in PART.finditer(text)
    ]


def write():
    """Write every generated part of every page anew, and say which were stale."""
    made = {}
    for page in PAGES:
        text = (ROOT / page).read_text()
        for name, old in parts(page):
            if name not in BLOCKS:
                refuse(f"{page}: there is no generated part {name!r} in tools/docs.py")
            if name not in made:
                made[name] = BLOCKS[name]()
            new = made[name]
            text = PART.sub(
                lambda m, name=name, new=new: (
                    f"{m[1]}{new}\n{m[3]}" if m[2] == name else m[0]
                ),
                text,
            )
            print(f"{page}: {name} {'is fresh' if same(old, new) else 'was stale'}")
        (ROOT / page).write_text(text)


if __name__ == "__main__":
    if sys.argv[1:]:
        refuse("python -m tools.docs takes no arguments")
    assert len(STAGES) == len(LESSONS)
    write()
