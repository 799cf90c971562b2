"""Write the generated parts of the pages anew: `python -m tools.pages.blocks`.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`. NAME is a
key of BLOCKS, followed by arguments: `hunk 03_dp 04_ddp 2`. What follows a hunk, up to
the next part or chapter or the end of a fold (`</details>`), is its reason: the pages are
where the reasons are kept.
"""

import functools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

from tools.bench import benchmark, predict
from tools.lab.exercise import exercises as lab_exercises
from tools.run import diffs
from tools.run.stages import ROOT, STAGES, TARGETS, previous, refuse, script

PAGES = [
    "README.md",
    "SCALING.md",
    "exercises/README.md",
    *(f"{stage}/README.md" for stage in STAGES),
]
PART = re.compile(r"(<!-- generated: (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
REASON = re.compile(
    r"<!-- generated: hunk (\S+) (\S+) (\d+) -->.*?<!-- end -->\n"
    r"(.*?)(?=^<!-- generated|^## |^</details>|\Z)",
    re.DOTALL | re.MULTILINE,
)
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


@functools.cache
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


def printed(stage):
    """Return what a stage printed in the run of `output`, with its command."""
    (run,) = [part for part in output().split("\n\n") if f" {stage}/mnist.py" in part]
    return "```console\n" + run[run.index("$ OMP") :] + "\n```"


def anchor(a, b):
    """Return the name of a diff in links, to which `.3` is added for its third hunk."""
    return b if a == previous(b) else f"{a}-{b}"


def hunk(a, b, number):
    """Return a hunk of a diff, under a heading that can be linked to."""
    found = diffs.hunks(a, b)
    one = found[int(number) - 1]
    return "\n".join([
        f'<a id="{anchor(a, b)}.{number}"></a>\n',
        f"### {number} of {len(found)}: `{one.section}`\n",
        "```diff", *one.text, "```",
    ])  # fmt: skip


def reasons(a, b):
    """Return the reasons for the hunks of the diff from `a` to `b`, as Markdown.

    They stand in the page of `b`. Raises SystemExit where the page does not have
    exactly the hunks of the diff.
    """
    text = (ROOT / b / "README.md").read_text()
    found = [m for m in REASON.finditer(text) if m[1] == a and m[2] == b]
    numbers, needed = [int(m[3]) for m in found], len(diffs.hunks(a, b))
    if numbers != list(range(1, needed + 1)):
        refuse(
            f"{b}/README.md explains the hunks {numbers} of the diff from {a}, which "
            f"has {needed}: put a part <!-- generated: hunk {a} {b} N --> for each, "
            "in order, its reason below it, then run: make docs"
        )
    return [m[4].strip() for m in found]


def arithmetic():
    """Return the table of ideal training times, of ImageNet on 1 to 32 GPUs."""
    images, batch, seconds, epochs = 1_280_000, 128, 7.2, 100
    steps = images // batch
    hours = steps * seconds / 3600
    text = (
        f"{images:,} images, {batch} a batch: {steps:,} steps an epoch. At {seconds} s "
        f"a step that is {hours:g} hours an epoch and {hours * epochs:,g} hours for "
        f"{epochs} epochs.\n"
    )
    lines = [
        text,
        "| GPUs | an epoch, hours | 100 epochs, hours | 100 epochs, days |",
        "|---:|---:|---:|---:|",
    ]
    for gpus in 1, 2, 4, 8, 16, 32:
        time = hours / gpus
        lines.append(
            f"| {gpus} | {time:.4g} | {time * epochs:,.1f} | {time * epochs / 24:.1f} |"
        )
    return "\n".join(lines)


def exercises():
    """Return the table of the exercises."""
    lines = ["| | exercise | stage | minutes |", "|---|---|---|---:|"]
    for one in lab_exercises():
        link = f"[{one.title}]({one.folder.name}/exercise.md)"
        lines.append(f"| {one.number} | {link} | `{one.stage}` | {one.minutes} |")
    return "\n".join(lines)


def measured():
    """Return the benchmark that the pages show: a copy of a runs/bench.json."""
    return json.loads((ROOT / "tools/bench/measured.json").read_text())


def bench():
    """Return the tables of the benchmark in tools/bench/measured.json."""
    return "\n".join(benchmark.report(measured()))


def model():
    """Return what the model of a step predicts, beside what was measured."""
    parameters, rows = predict.fit(measured())
    lines = [
        (f"Fitted: {parameters['bandwidth'] / 1e9:.2f} GB/s, "
        f"{1000 * parameters['latency']:.2f} ms a message; computing beside another process "
        f"takes {parameters['slower']:.2f} times as long as alone.\n"),
        "| hidden | batch | measured, ms | model, ms | error | |",
        "|---:|---:|---:|---:|---:|---|",
    ]  # fmt: skip
    errors = []
    for hidden, batch, fitted, real, predicted in rows:
        error = predicted / real - 1
        errors += [] if fitted else [abs(error)]
        lines.append(
            f"| {hidden} | {batch} | {1000 * real:.2f} | {1000 * predicted:.2f} | "
            f"{error:+.1%} | {'fitted' if fitted else 'predicted'} |"
        )
    lines.append(
        f"\nThe {len(errors)} predicted rows are off by {statistics.median(errors):.0%} in the "
        f"median, and by {max(errors):.0%} at most."
    )
    return "\n".join(lines)


def forecast():
    """Return the table of the example on 32 GPUs, over networks and steps."""
    given = predict.read({})
    total = given["NODES"] * given["GPUS_PER_NODE"]
    size, inside = given["MB"] * 1e6, given["INSIDE"] * 1e9
    lines = [
        ("| a step on one GPU | network between nodes | ideal, hours | weak, hours "
        "| half hidden | strong, hours | half hidden |"),
        "|---:|---|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    networks = [("10 Gbit/s Ethernet", 10), ("100 Gbit/s", 100),
                ("all 32 in one NVLink domain", None)]  # fmt: skip
    for seconds in 7.2, 0.1:
        alone = predict.hours(given["IMAGES"], given["BATCH"], given["EPOCHS"], seconds)
        for name, network in networks:
            nodes, gpus = (
                (given["NODES"], given["GPUS_PER_NODE"]) if network else (1, total)
            )
            row = f"| {seconds} s | {name} | {alone / total:.2f} "
            for batch, own in (given["BATCH"] * total, 1), (given["BATCH"], total):
                for overlap in 0, 0.5:
                    step = predict.step(seconds / own, size, nodes, gpus,
                                        (network or 1) * 1e9 / 8, inside, overlap)  # fmt: skip
                    took = predict.hours(given["IMAGES"], batch, given["EPOCHS"], step)
                    row += f"| {took:.2f} "
            lines.append(row + "|")
    return "\n".join(lines)


BLOCKS = {
    "bench": bench, "model": model, "predict": forecast,
    "stages": stages, "output": output, "printed": printed, "hunk": hunk,
    "arithmetic": arithmetic, "exercises": exercises,
}  # fmt: skip


def make(name):
    """Return the text of a generated part."""
    key, *arguments = name.split()
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
    return all(a == b or abs(float(a) / float(b) - 1) < 0.01 for a, b in pairs)


def parts(page):
    """Return the generated parts of a page as a list of (name, text)."""
    return [(m[2], m[3].strip()) for m in PART.finditer((ROOT / page).read_text())]


def write():
    """Write every generated part of every page anew, and say which were stale."""
    for a, b in diffs.EXPLAINED:
        reasons(a, b)
    for page in PAGES:

        def fresh(match, page=page):
            if match[2].split()[0] not in BLOCKS:
                refuse(f"{page}: tools/pages/blocks.py makes no part {match[2]!r}")
            text = make(match[2])
            if same(match[3].strip(), text):
                return match[0]
            print(f"{page}: {match[2]} was stale")
            return f"{match[1]}{text}\n{match[4]}"

        (ROOT / page).write_text(PART.sub(fresh, (ROOT / page).read_text()))
    print(f"{sum(len(parts(page)) for page in PAGES)} generated parts are fresh")


if __name__ == "__main__":
    if sys.argv[1:]:
        refuse("python -m tools.pages.blocks takes no arguments")
    assert len(STAGES) == len(LESSONS)
    write()
