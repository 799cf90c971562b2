"""Draw the Mermaid diagrams of the pages as SVG: `python -m tools.pages.diagrams`.

GitHub draws them itself. The site and what is printed from it must not load a script
from elsewhere, so they show svg/diagrams/*.svg. A file is named by the hash of its
source: one that is there is up to date, and only a new one is drawn, in a browser, with
Mermaid from npm.
"""

import base64
import hashlib
import io
import re
import tarfile
import urllib.request

from tools.run.stages import ROOT, refuse

BLOCK = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
FOLDER = ROOT / "tools" / "pages" / "svg" / "diagrams"
MERMAID = "https://registry.npmjs.org/mermaid/-/mermaid-12.3.0.tgz"
SHA512 = (
    "4113TdXeLAsMruJ79OpFL5O8+LTFXhQqZ260rF3tgUmi"
    "NAtRm4Uume04I+65PRN6yZ69J4f8rVYWW8zRk65UYw=="
)
DRAW = """async (source) => {
  const labels = {htmlLabels: false};
  mermaid.initialize({theme: "neutral", fontFamily: "sans-serif", startOnLoad: false,
                      deterministicIds: true, ...labels, flowchart: labels});
  return (await mermaid.render("diagram", source)).svg;
}"""


def sources():
    """Return the diagrams of all pages, each as Mermaid's text."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("0*/*.md"), *ROOT.glob("beyond/**/*.md")]
    found = []
    for page in sorted(pages):
        found += BLOCK.findall(page.read_text())
    return found


def path(source):
    """Return the path of the picture of a diagram."""
    return FOLDER / f"{hashlib.sha256(source.encode()).hexdigest()[:12]}.svg"


def words(source):
    """Return the labels of a diagram, as a text for those who do not see it."""
    labels = re.findall(r'"([^"]+)"', source) or re.findall(r": (.+)", source)
    plain = [re.sub(r"<.*?>", " ", label).strip(" .…") for label in labels]
    return "Diagram: " + re.sub(r"[\[\]]", "", "; ".join(dict.fromkeys(plain)))


def mermaid():
    """Download Mermaid and return its script. Raises SystemExit where it is another."""
    with urllib.request.urlopen(MERMAID, timeout=60) as answer:
        archive = answer.read()
    if base64.b64encode(hashlib.sha512(archive).digest()).decode() != SHA512:
        refuse(f"{MERMAID} is not the file that was tried")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        return files.extractfile("package/dist/mermaid.min.js").read().decode()


def draw(missing):
    """Draw diagrams in a browser and write their pictures."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.add_script_tag(content=mermaid())
        for source in missing:
            path(source).write_text(page.evaluate(DRAW, source) + "\n")
        browser.close()


def main():
    FOLDER.mkdir(exist_ok=True)
    found = sources()
    needed = {path(source) for source in found}
    missing = [source for source in found if not path(source).exists()]
    if missing:
        draw(missing)
    for old in set(FOLDER.glob("*.svg")) - needed:
        old.unlink()
    print(f"{len(found)} diagrams, {len(missing)} drawn")


if __name__ == "__main__":
    main()
