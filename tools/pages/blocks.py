"""Regenerate the generated parts of the pages: `python -m tools.pages.blocks`.

With `--check`, it only lists stale parts and skips those that show a run's output.

A generated part is between `<!-- generated: NAME -->` and `<!-- end -->`. NAME is a key
of BLOCKS, followed by arguments: `printed 04_ddp`. Hunks also have a title, and a part
can show several: `hunk 02_single_gpu 03_dp 1 2 | Import it`.
"""

import math
import re
import sys
import textwrap
from itertools import pairwise

from tools.bench import planned
from tools.bench.tables import ON_A_GPU, measured_on, published, steps, table
from tools.lab.exercise import PARTS, along_the_path
from tools.pages import outcomes, own_script, upstream, variants
from tools.pages.reasons import LESSONS, refuse_unexplained
from tools.pages.symptoms import symptoms_by_kind
from tools.run import diffs
from tools.run.essence import essence
from tools.run.parts import parts
from tools.run.stages import (
    BEYOND,
    OWN,
    ROOT,
    TARGETS,
    TRANSFORMER,
    previous,
    refuse,
    script,
)

# Folders of pages.
ROOMS = "", "docs/", "exercises/", "[0-9]*/", "beyond/**/", "transformer/**/"
PAGES = []
for room in ROOMS:
    for page in sorted(ROOT.glob(f"{room}*.md")):
        PAGES.append(str(page.relative_to(ROOT)))
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?")


def stages(targets=TARGETS):
    """Return a table of the six stages, or of other `targets`."""
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


def hunk(a, b, *numbers, title):
    """Return hunks of a diff under one heading; `04_ddp.3` links to the third."""
    found = diffs.hunks(a, b)
    shown = [anchors(b, numbers), "", f"### {title}", "", "```diff"]
    for number in numbers:
        shown += found[int(number) - 1].text
    shown.append("```")
    return "\n".join(shown)


def plumbing(a, b, *numbers, title):
    """Return a line, or the heading of hunks that `make diff` and the site show."""
    found = diffs.hunks(a, b)
    count = sum(len(found[int(number) - 1].changed()) for number in numbers)
    if count == 1:
        return hunk(a, b, *numbers, title=title)
    where = f"`make diff A={a} B={b}` shows {count} more lines."
    return "\n".join([anchors(b, numbers), "", f"### {title}", "", where])


def anchors(stage, numbers):
    """Return the anchors of hunks: `04_ddp.3` is the third of stage 4's diff."""
    return "".join(f'<a id="{stage}.{number}"></a>' for number in numbers)


def piece(stage, name):
    """Return part of a script: the function `name`, or main's block `# The name:`.

    A function ends at two blank lines, a block at one. Raises SystemExit if the script
    contains neither.
    """
    text = script(stage).read_text()
    function = rf"^def {name}\(.*?(?=\n\n\n)"
    block = rf"^    # The {name}:.*?(?=\n\n)"
    found = re.search(rf"(?ms){function}|{block}", text)
    if not found:
        refuse(f"{stage} has no piece {name!r}")
    return f"```python\n{textwrap.dedent(found[0])}\n```"


def bench():
    """Return the published benchmark: its machine and its table."""
    result = published()
    headings, *rows = steps(result)
    about = measured_on(result["machine"])
    return f"{about}\n\n{table('r' * len(headings), headings, rows)}"


def figures(name):
    """Return a table of `tools.bench`, computed or measured on a GPU."""
    headings, *rows = (planned.TABLES | ON_A_GPU)[name]()
    return table("l" + "r" * (len(headings) - 1), headings, rows)


def exercises():
    """Return the tables of exercises, one per part of the path."""
    headings = ["", "exercise", "stage", "builds on", "minutes"]
    rows = {part: [] for part in PARTS}
    for one in along_the_path():
        link = f"[{one.title}]({one.name}.md)"
        after = ", ".join(one.after)
        rows[one.part].append([one.number, link, f"`{one.stage}`", after, one.minutes])
    tables = []
    for part, title in PARTS.items():
        body = table("llllr", headings, rows[part])
        tables.append(f'<a id="part-{part}"></a>**Part {part}. {title}**\n\n{body}')
    return "\n\n".join(tables)


def public_scripts():
    """Return a sentence that counts public scripts with silent bugs."""
    page = (ROOT / "onecurve/PUBLIC.md").read_text()
    count = r"Of (\d+) scripts, (\d+) have .*, and (\d+) more in what they"
    scripts, training, more = re.search(count, page).groups()
    return (
        f"Silent bugs are common. Of {scripts} widely copied scripts, {training} train "
        f"incorrectly\n({int(training) - 4} training scripts and 4 API demos). Another "
        f"{more} train correctly but evaluate,\nprint or save the wrong thing ([list "
        "and symptoms](onecurve/PUBLIC.md))."
    )


BLOCKS = {
    "bench": bench,
    "formula": figures,
    "one_gpu": figures,
    "stages": stages,
    "beyond": lambda: stages(BEYOND),
    "transformer": lambda: stages(TRANSFORMER),
    "printed": variants.printed,
    "verdict": variants.verdict,
    "program": variants.program,
    "ran": lambda path: variants.program(path).rpartition("\n\n")[2],
    "essence": essence,
    "hunk": hunk,
    "plumbing": plumbing,
    "mistakes": outcomes.mistakes,
    "moved": outcomes.moved,
    "held": variants.held_by_variants,
    "piece": piece,
    "exercises": exercises,
    "symptoms": symptoms_by_kind,
    "public": public_scripts,
    "upstream": upstream.upstream,
    "variant": variants.variant,
    "variants": variants.variants,
    "left_out": variants.left_out,
    "inspected": own_script.inspected,
    "own_curves": own_script.own_curves,
    "traced": lambda: variants.console("$ make trace", *published("traced")[-1]),
    "widths": variants.widths,
}
# These show a run's output.
RUNS = {"held", "printed", "verdict", "program", "variants", "inspected"}
RUNS |= {"own_curves", "widths", "ran"}


def make(part):
    """Return a generated part's content. Raises KeyError if its kind is unknown."""
    options = {"title": part.title} if part.title else {}
    return BLOCKS[part.kind](*part.arguments, **options)


def same(old, new):
    """Return whether two generated parts agree.

    Tables and diffs must be equal. In a run's output, the words must be equal and the
    numbers within 1 %, because float32 sums depend on the processor. Times, speeds and
    thread counts are ignored.
    """
    if "```console" not in new:
        return old == new
    varies = r"\d+\.\d+ (GB/)?s\b|OMP_NUM_THREADS=\d+|\(\de-\d+\)| +"
    old, new = (re.sub(varies, " ", text, flags=re.MULTILINE) for text in (old, new))
    if NUMBER.sub("#", old) != NUMBER.sub("#", new):
        return False
    pairs = zip(NUMBER.findall(old), NUMBER.findall(new), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=0.01) for a, b in pairs)


def stale_parts(kinds):
    """Yield (page, Part, its new content) for each stale part of some kinds.

    Raises SystemExit if a page names a part that is not in BLOCKS or doesn't explain a
    hunk.
    """
    for a, b in [*diffs.EXPLAINED, *pairwise(OWN)]:
        refuse_unexplained(a, b)
    for page in PAGES:
        for part in parts((ROOT / page).read_text()):
            if part.kind not in BLOCKS:
                refuse(f"{page}: no part {part.name!r} in tools/pages/blocks.py")
            if part.kind in kinds:
                new = make(part)
                if not same(part.shown.strip(), new):
                    yield page, part, new


def check():
    """List the stale parts that need no run. Raises SystemExit if there are any."""
    stale = list(stale_parts(BLOCKS.keys() - RUNS))
    for page, part, _ in stale:
        print(f"{page}: {part.name} is stale: make docs")
    if stale:
        sys.exit(1)


def write():
    """Regenerate the stale parts of all pages and print their names."""
    for page, part, new in stale_parts(BLOCKS):
        print(f"{page}: {part.name} was stale", flush=True)
        fresh = f"<!-- generated: {part.name} -->\n{new}\n<!-- end -->"
        text = (ROOT / page).read_text()  # the page may have changed meanwhile
        (ROOT / page).write_text(text.replace(part.whole, fresh))


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        check()
    else:
        write()
