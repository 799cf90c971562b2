"""Draw the Mermaid diagrams of the pages: `python -m tools.pages.diagrams`.

GitHub draws them itself, the site shows svg/diagrams/*.svg. A file is named by the hash
of its source, so one that is there is up to date.
"""

import hashlib
import re
import subprocess

from tools.run.stages import ROOT

BLOCK = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
FOLDER = ROOT / "tools" / "pages" / "svg" / "diagrams"
DRAW = ["npx", "-y", "@mermaid-js/mermaid-cli@11", "-q", "-i", "-"]
DRAW += ["-c", "tools/pages/mermaid.json", "-p", "tools/pages/puppeteer.json", "-o"]


def path(source):
    """Return the path of the picture of a diagram, whose source is Mermaid's text."""
    return FOLDER / f"{hashlib.sha256(source.encode()).hexdigest()[:12]}.svg"


def sources():
    """Return the diagrams of all pages, each as Mermaid's text."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("0*/*.md"), *ROOT.glob("beyond/**/*.md")]
    return BLOCK.findall("".join(page.read_text() for page in pages))


if __name__ == "__main__":
    found = {path(source): source for source in sources()}
    for old in set(FOLDER.glob("*.svg")) - found.keys():
        old.unlink()
    for target, source in found.items():
        if not target.exists():
            subprocess.run(
                [*DRAW, target], input=source, text=True, cwd=ROOT, check=True
            )
