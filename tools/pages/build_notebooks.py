"""Write the companion notebooks: `python -m tools.pages.build_notebooks`.

notebooks/source/01_cpu.py becomes notebooks/01_cpu.ipynb, without outputs. A source is
Python with cells in the percent format, each with a label:

    # %% [markdown] idea
    # Text, in Markdown.
    # %% first-step
    print("code")
    # %% ranks 3 gradients
    print("code that three processes run")

A cell's id is made from the stage and the label, so the same source always gives the
same bytes, and a change of the text keeps the ids.
"""

import re

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools.run.stages import ROOT, STAGES, refuse

FOLDER = ROOT / "notebooks"
CELL = re.compile(r"^# %%(?: (\[markdown\]|ranks \d+))? ([a-z0-9-]+)$", re.MULTILINE)
METADATA = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}


def source(stage):
    """Return the path of the source of a stage's notebook."""
    return FOLDER / "source" / f"{stage}.py"


def build(stage):
    """Return the notebook of a stage as the text of its .ipynb file.

    Ends the program with one line where the source has no cells, or a label twice.
    """
    pieces = CELL.split(source(stage).read_text())
    if pieces[0].strip():
        refuse(f"{source(stage)}: text before the first cell")
    cells = []
    for kind, label, text in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        text, name = text.strip(), f"{stage}-{label}"
        if kind == "[markdown]":
            text = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
            cells.append(new_markdown_cell(text, id=name))
        else:
            cells.append(new_code_cell(f"%%{kind}\n{text}" if kind else text, id=name))
    if len({cell["id"] for cell in cells}) < len(cells) or not cells:
        refuse(f"{source(stage)}: every cell needs a label of its own")
    notebook = new_notebook(cells=cells, metadata=METADATA)
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


if __name__ == "__main__":
    for stage in STAGES:
        path, text = FOLDER / f"{stage}.ipynb", build(stage)
        stale = not path.exists() or path.read_text() != text
        path.write_text(text)
        print(f"{path.relative_to(ROOT)} {'written' if stale else 'is fresh'}")
