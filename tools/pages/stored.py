"""Run the notebooks and store their outputs: `python -m tools.pages.stored`.

Only notebooks whose sources changed since their last run are run. Times and paths are
removed from their outputs. on_a_gpu is not run, but gets the address of `origin`. With
`--check` the stale notebooks are only listed.
"""

import hashlib
import re
import subprocess
import sys

from tools.run.stages import ROOT, STAGES, script

FOLDER = ROOT / "notebooks"
FREE_GPU = "on_a_gpu"
OF_STAGES = [*STAGES, "13_gpt"]
UNPUBLISHED = "https://github.com/OWNER/NAME"
REPOSITORY = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+")
PYTHON = {  # any version of it
    "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}
TIME = re.compile(r"(\d+\.\d+ )+(?=m?s\b)")


def address():
    """Return the repository's GitHub address, or a placeholder if it has none."""
    command = ["git", "-C", ROOT, "remote", "get-url", "origin"]
    told = subprocess.run(command, capture_output=True, text=True).stdout
    found = re.search(r"github\.com[:/](.+?)(\.git)?$", told.strip())
    return f"https://github.com/{found[1]}" if found else UNPUBLISHED


def source(name):
    """Return a notebook from its source, without outputs."""
    import jupytext  # slow to import, like those below

    notebook = jupytext.read(FOLDER / "source" / f"{name}.py")
    published = address()
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.source = cell.source.replace(UNPUBLISHED, published)
    return notebook


def digest(name):
    """Return a digest of all that a notebook's outputs depend on, except the pages."""
    paths = [FOLDER / "source" / f"{name}.py"]
    if name != FREE_GPU:
        paths += [ROOT / "tools/pages/notebook.py", ROOT / "tools/pages/drawing.py"]
        paths += [script(stage) for stage in (STAGES if name in STAGES else [name])]
    data = b"".join(path.read_bytes() for path in paths)
    return hashlib.sha256(data).hexdigest()[:12]


def without_times(text):
    """Return a cell's output without times and local paths."""
    return TIME.sub("… ", text.replace(str(ROOT), "…"))


def store(name):
    """Run a notebook, except the one for GPUs, and write its file."""
    import nbformat
    from nbclient import NotebookClient

    notebook = source(name)
    if name != FREE_GPU:
        place = {"metadata": {"path": str(FOLDER)}}
        options = {"timeout": 600, "record_timing": False, "resources": place}
        NotebookClient(notebook, **options).execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "text" in output:
                output.text = without_times(output.text)
    notebook.metadata["sources"] = digest(name)
    notebook.metadata |= PYTHON
    nbformat.write(notebook, FOLDER / f"{name}.ipynb")


def stale_notebooks():
    """Return the names of the notebooks that don't match their sources.

    Raises ValidationError if one is not a valid notebook.
    """
    import nbformat

    found = []
    for name in [*OF_STAGES, FREE_GPU]:
        path = FOLDER / f"{name}.ipynb"
        stored = nbformat.read(path, 4) if path.exists() else nbformat.v4.new_notebook()
        nbformat.validate(stored)
        is_digest = stored.metadata.get("sources") == digest(name)
        if not is_digest or cells_of(stored) != cells_of(source(name)):
            found.append(name)
    return found


def cells_of(notebook):
    """Return the type and the source of each cell of a notebook.

    GitHub addresses become the placeholder, because a fork has a different one.
    """
    found = []
    for cell in notebook.cells:
        found.append((cell.cell_type, REPOSITORY.sub(UNPUBLISHED, cell.source)))
    return found


def main():
    names = stale_notebooks()
    if sys.argv[1:] == ["--check"]:
        for name in names:
            print(f"notebooks/{name}.ipynb is stale: make docs")
        sys.exit(1 if names else 0)
    for name in names:
        print(f"{name}.ipynb: its sources changed, running it", flush=True)
        store(name)


if __name__ == "__main__":
    main()
