"""The site's tables of contents."""

from tools.lab.exercise import along_the_path
from tools.run.stages import BEYOND, ROOT, STAGES, TRANSFORMER, folder


def pages_of(stages):
    """Return the lessons of stages."""
    return [f"{folder(stage).relative_to(ROOT)}/README" for stage in stages]


CONTENTS = {  # caption -> the pages below it, in the table of contents
    "Begin": ["tools/site/playground", "tools/site/side_by_side", "tools/site/learn"],
    "Six stages": pages_of(STAGES),
    "Beyond": [
        "beyond/README",
        *pages_of(BEYOND.values()),
        "beyond/BFLOAT16",
        "beyond/own_script/README",
        "onecurve/README",
    ],
    "The second curve": ["transformer/README", *pages_of(TRANSFORMER.values())],
    "Look closer": ["tools/site/notebooks", "exercises/README", "exercises/WORKSHOP"],
    "Find help": [
        "docs/SETUP",
        "docs/SYMPTOMS",
        "04_ddp/HANGS",
        "04_ddp/CLUSTERS",
        "docs/SCALING",
        "beyond/UPSTREAM",
        "CONTRIBUTING",
    ],
}
UNLISTED = [
    "docs/SECURITY",
    "docs/CHANGELOG",
    "exercises/AUTHORS",
    "data/sample/README",
]
MAIN = [  # at the top of the first page
    ("Stages", "01_cpu/README"),
    ("Playground", "tools/site/playground"),
    ("Side by side", "tools/site/side_by_side"),
    ("Notebooks", "tools/site/notebooks"),
    ("Exercises", "exercises/README"),
    ("Beyond", "beyond/README"),
    ("Scaling", "docs/SCALING"),
]
LISTS = {  # page -> the pages in its table of contents
    "exercises/README": [one.name for one in along_the_path()],
    "onecurve/README": ["RULES", "PUBLIC"],
    "beyond/own_script/README": ["FSDP", "INSPECT"],
    "04_ddp/CLUSTERS": ["CLUSTERS_DETAILS"],
    "docs/SCALING": ["SCALING_DETAILS"],
    "tools/site/notebooks": ["/notebooks/*"],
}
for path in sorted(ROOT.glob("[0bt]*/**/DETAILS.md")):
    page = f"{path.parent.relative_to(ROOT)}/README"
    LISTS[page] = [*LISTS.get(page, []), "DETAILS"]


def toctree(pages, options):
    """Return a table of contents in MyST's syntax."""
    return "\n".join(["", "```{toctree}", ":hidden:", *options, "", *pages, "```", ""])


def contents():
    """Return the first page's tables of contents, the site's navigation."""
    lists = CONTENTS.items()
    return "".join(toctree(pages, [f":caption: {name}"]) for name, pages in lists)
