"""Write the generated parts of the pages anew: `python -m tools.pages.blocks`.

With `--check` it writes nothing, and names each part that is stale, but for those that
show what a run prints: `make docs CHECK=1` finds these.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`. NAME is a
key of BLOCKS, followed by arguments: `printed 04_ddp`. Hunks have a title, too, and one
part may show several: `hunk 03_dp 04_ddp 1 2 | Import what is new`.
"""

import math
import re
import sys
import textwrap
from itertools import pairwise

from tools.bench import planned
from tools.bench.tables import ON_A_GPU, measured_on, published, steps, table
from tools.lab.exercise import PARTS, along_the_path
from tools.pages import outcomes, own_script, resumed, upstream, variants
from tools.pages.essence import PAIR, essence
from tools.pages.reasons import LESSONS, refuse_unexplained
from tools.pages.symptoms import symptoms_by_kind
from tools.run import diffs
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
PART = re.compile(r"<!-- generated: (.+?) -->\n(.*?)<!-- end -->", re.DOTALL)
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-\d+)?")


def stages(targets=TARGETS):
    """Return the table of the six stages, or of those in a folder of stages.

    Stage 4 is compared with stage 2, as in the front page's diff.
    """
    rows = []
    for target, stage in targets.items():
        length = len(script(stage).read_text().splitlines())
        before = PAIR[0] if stage == PAIR[1] else previous(stage)
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
    shown = [f'<a id="{b}.{number}"></a>' for number in numbers]
    shown += ["", f"### {title}", "", "```diff"]
    for number in numbers:
        shown += found[int(number) - 1].text
    shown.append("```")
    return "\n".join(shown)


def piece(stage, name):
    """Return a piece of a script: the function `name`, or main's block `# The name:`.

    A function ends at two blank lines, a block at one. Raises SystemExit where there is
    none such.
    """
    text = script(stage).read_text()
    function = rf"^def {name}\(.*?(?=\n\n\n)"
    block = rf"^    # The {name}:.*?(?=\n\n)"
    found = re.search(rf"(?ms){function}|{block}", text)
    if not found:
        refuse(f"{stage} has no piece {name!r}")
    return f"```python\n{textwrap.dedent(found[0])}\n```"


def bench():
    """Return the published benchmark: where it was measured, and its table."""
    result = published()
    headings, *rows = steps(result)
    about = measured_on(result["machine"])
    return f"{about}\n\n{table('r' * len(headings), headings, rows)}"


def figures(name):
    """Return a table of `tools.bench`: by formulas, or measured on a GPU."""
    headings, *rows = (planned.TABLES | ON_A_GPU)[name]()
    return table("l" + "r" * (len(headings) - 1), headings, rows)


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


def public_scripts():
    """Return in how many public scripts something is wrong in silence, a sentence."""
    page = (ROOT / "onecurve/PUBLIC.md").read_text()
    count = r"Of (\d+) scripts, (\d+) have .*, and (\d+) more in what they"
    scripts, training, more = re.search(count, page).groups()
    return (
        f"Such mistakes are not rare. Of {scripts} public training scripts that "
        f"many have copied, {training} have one in the training\n"
        f"itself, and {more} more in what they evaluate, print or save: "
        "[which, and how you see it](onecurve/PUBLIC.md)."
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
    "essence": essence,
    "hunk": hunk,
    "plumbing": hunk,
    "mistakes": outcomes.mistakes,
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
    "resumed": resumed.resumed,
    "widths": resumed.widths,
}
# Those that show what a run prints.
RUNS = {"held", "printed", "verdict", "program", "variants", "inspected"}
RUNS |= {"own_curves", "resumed", "widths"}


def make(name):
    """Return the text of a generated part. Raises KeyError where there is none such."""
    words, _, title = name.partition(" | ")
    key, *arguments = words.split()
    options = {"title": title} if title else {}
    return BLOCKS[key](*arguments, **options)


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


def stale_parts(kinds):
    """Yield (page, name, part, its new text) of each stale part of some kinds.

    Raises SystemExit if a page names a part that is not in BLOCKS, or does not explain
    a hunk.
    """
    for a, b in [*diffs.EXPLAINED, *pairwise(OWN)]:
        refuse_unexplained(a, b)
    for page in PAGES:
        for part in PART.finditer((ROOT / page).read_text()):
            name, old = part.groups()
            kind = name.split()[0]
            if kind not in BLOCKS:
                refuse(f"{page}: tools/pages/blocks.py makes no part {name!r}")
            if kind in kinds:
                new = make(name)
                if not same(old.strip(), new):
                    yield page, name, part[0], new


def check():
    """Name what is stale of all that needs no run. Raises SystemExit if anything is."""
    stale = [f"{page}: {name}" for page, name, *_ in stale_parts(BLOCKS.keys() - RUNS)]
    for name in stale:
        print(f"{name} is stale: make docs")
    if stale:
        sys.exit(1)


def write():
    """Write every generated part of every page anew, and say which were stale."""
    for page, name, old, new in stale_parts(BLOCKS):
        print(f"{page}: {name} was stale", flush=True)
        fresh = f"<!-- generated: {name} -->\n{new}\n<!-- end -->"
        text = (ROOT / page).read_text()  # someone may write the page meanwhile
        (ROOT / page).write_text(text.replace(old, fresh))


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        check()
    else:
        write()
