"""Promise: links resolve and commands exist."""

import ast
import functools
import importlib.util
import re
import shlex
import sys
from pathlib import Path

from markdown_it import MarkdownIt
from mdit_py_plugins.footnote import footnote_plugin

from conftest import ROOT, call
from tools.lab.exercise import find_exercise
from tools.run.stages import load_file, script


def pages():
    """Return all Markdown files in the repository."""
    result = call(["git", "ls-files", "-co", "--exclude-standard", "*.md"])
    found = [ROOT / name for name in result.stdout.splitlines()]
    return [page for page in found if page.exists()]


def anchors(text):
    """Return the anchors that the usual code hosts create for a page."""
    found = set(re.findall(r'<a id="([^"]+)">', text))
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        found.add(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"))
    return found


def links_to_files(page):
    """Return a page's links to files in the repository."""
    found = []
    for token in MarkdownIt().use(footnote_plugin).parse(page.read_text()):
        for part in token.children or []:
            if part.type == "link_open" and not part.attrs["href"].startswith("http"):
                found.append(part.attrs["href"])
    return found


def test_links_between_pages_resolve():
    for page in pages():
        for target in links_to_files(page):
            path, _, anchor = target.partition("#")
            path = page.parent / path if path else page
            assert path.is_file(), f"{page}: {target}"
            found = not anchor or anchor in anchors(path.read_text())
            assert found, f"{page}: {target}"
    assert len(links_to_files(ROOT / "README.md")) > 20


ACTIVATE = ". .venv/bin/activate"
OTHER = "export", "git", "ls", "unshare", "ip", "pip"


def blocks_of_commands():
    """Return (page, lines) of each fenced sh block on the tutorial's pages.

    Lines that end with a backslash are joined with the next. The inspector's pages are
    skipped because their commands run in its own folder.
    """
    found = []
    own = [page for page in pages() if not page.is_relative_to(ROOT / "onecurve")]
    for page in own:
        for token in MarkdownIt().parse(page.read_text()):
            if token.type == "fence" and token.info == "sh":
                text = re.sub(r" *\\\n *", " ", token.content)
                lines = [line for line in text.splitlines() if line.strip()]
                found.append((page, lines))
    return found


def check_script(words, monkeypatch):
    """Assert that a stage's script accepts these flags."""
    (name,) = [word for word in words if word.endswith(("/mnist.py", "/gpt.py"))]
    flags = words[words.index(name) :]
    path = ROOT / name
    if name.startswith("workshop/"):  # has its stage's flags
        path = script(find_exercise(path.parent.name).stage)
    monkeypatch.setattr("sys.argv", flags)
    if "--help" not in flags:
        load_file(name, path).parse_args()


@functools.cache
def inspector_options():
    """Return the options of the onecurve command."""
    result = call([sys.executable, "-m", "onecurve", "--help"])
    return re.findall(r"(?<!\S)--?[a-z]+", result.stdout)


def check_command(line, monkeypatch):
    """Assert that a command's targets, files, modules and options exist."""
    bare = re.sub(r"^([A-Z_]+=\S* )+(?!$)", "", line)  # without leading variables
    first, *words = shlex.split(bare, comments=True)
    program = Path(first).name
    if first == "make":  # refuses unknown targets and variables
        result = call(["make", "-n", *words])
        assert result.returncode == 0, result.stderr
    elif first == "onecurve":
        options = re.findall(r"(?<!\S)--?[a-z]+", line.partition(".py")[0])
        assert set(options) <= set(inspector_options()), line
    elif "/mnist.py" in line or "/gpt.py" in line:
        check_script(words, monkeypatch)
    elif program == "python" and words[0] == "-c":
        ast.parse(words[1])
    elif program == "python" and words[0] == "-m":
        assert importlib.util.find_spec(words[1])
    elif program in ("python", "torchrun", "sbatch"):
        files = [word for word in words if word.endswith((".py", ".sh"))]
        assert files and all((ROOT / file).is_file() for file in files)
    else:
        assert first in OTHER or line == ACTIVATE


def test_commands_in_the_pages_exist(monkeypatch):
    found = blocks_of_commands()
    assert len(found) > 50
    for page, lines in found:
        for place, line in enumerate(lines):
            try:
                check_command(line, monkeypatch)
            except (AssertionError, SystemExit, SyntaxError, ValueError) as error:
                raise AssertionError(f"{page}: {line}: {error}") from error
            if line.startswith(("python ", "torchrun ", "pip ", "jupyter ")):
                assert ACTIVATE in lines[:place], f"{page}: {line}: activate .venv"
