"""Promise: pages have their chapters, links lead somewhere, and commands exist."""

import ast
import itertools
import re
import shlex
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from conftest import ROOT
from tools.lab.commands import find
from tools.pages import blocks
from tools.run import launch
from tools.run.stages import EVERY, STAGES, folder, load_file, script

HEADINGS = ["The idea", "The diff from stage", "What you see", "What goes wrong"]
HEADINGS += ["What to try", "Before you use it in earnest"]


def pages():
    """Return all Markdown files of the repository."""
    skipped = {".venv", "runs", "workshop", ".pytest_cache", "node_modules"}
    found = [p for p in ROOT.glob("**/*.md") if not skipped & set(p.parts)]
    assert {ROOT / page for page in blocks.PAGES} <= set(found)
    return found


@pytest.mark.parametrize("stage", EVERY.values())
def test_a_page_has_its_chapters_in_order(stage):
    text = (folder(stage) / "README.md").read_text()
    found = re.findall(r"^## (.*)$", text, re.MULTILINE)
    expected = ["The script" if h == HEADINGS[1] and stage == STAGES[0] else h
                for h in HEADINGS]  # fmt: skip
    places = [
        [n for n, heading in enumerate(found) if heading.startswith(start)]
        for start in expected
    ]
    assert all(places), found
    firsts = [place[0] for place in places]
    assert firsts == sorted(firsts)
    assert found[-1] == HEADINGS[-1]
    assert text.count("```mermaid\n") == 1


def anchors(text):
    """Return what a link into a page may name, as the usual code hosts make it."""
    found = set(re.findall(r'<a id="([^"]+)">', text))
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        found.add(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"))
    return found


def links(page):
    """Return the links of a page as a list of (text, address)."""
    found = []
    for token in MarkdownIt().parse(page.read_text()):
        parts = token.children or []
        for n, part in enumerate(parts):
            if part.type == "link_open":
                rest = itertools.takewhile(lambda t: t.type != "link_close", parts[n:])
                found.append(("".join(t.content for t in rest), part.attrs["href"]))
    return found


def test_links_between_pages_resolve():
    found = [(page, target) for page in pages() for _, target in links(page)]
    inside = [(page, target) for page, target in found if not target.startswith("http")]
    assert {page for page, _ in inside} >= {ROOT / "README.md", ROOT / "SCALING.md"}
    for page, target in inside:
        path, _, anchor = target.partition("#")
        path = page.parent / path if path else page
        assert path.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(path.read_text()), f"{page}: {target}"


def test_links_elsewhere_name_what_they_show():
    found = [(page, *link) for page in pages() for link in links(page)]
    outside = [one for one in found if one[2].startswith("http")]
    stages = {folder(stage) / "README.md" for stage in EVERY.values()}
    assert {page for page, *_ in outside} >= stages
    for page, name, _ in outside:
        assert len(name) >= 5 and not name.startswith("http"), f"{page}: {name}"
        assert name.lower() not in {"here", "this thread", "a thread", "link"}


@pytest.mark.parametrize("stage", EVERY.values())
def test_what_goes_wrong_has_sources(stage):
    """Each symptom is bold, comes first, and has a link to where people met it."""
    text = (folder(stage) / "README.md").read_text()
    chapter = text.split("## What goes wrong\n")[1].split("\n## ")[0]
    items = re.split(r"^- ", chapter, flags=re.MULTILINE)[1:]
    assert items
    for item in items:
        assert item.startswith("**"), f"{stage}: {item[:60]}"
        assert "](http" in item, f"{stage}: {item[:60]}"


@pytest.mark.parametrize("stage", EVERY.values())
def test_each_question_has_a_folded_answer(stage):
    text = (folder(stage) / "README.md").read_text()
    chapter = text.split("## What to try\n")[1].split("\n## ")[0]
    parts = re.findall(r"^```sh$|^<details><summary>Answer</summary>$|^</details>$",
                       chapter, re.MULTILINE)  # fmt: skip
    assert len(parts) >= 6
    assert parts == parts[:3] * (len(parts) // 3)


def commands():
    """Return (page, line) of every command in the fenced sh blocks of all pages."""
    found = []
    for page in pages():
        for token in MarkdownIt().parse(page.read_text()):
            if token.type == "fence" and token.info == "sh":
                lines = re.sub(r" *\\\n *", " ", token.content).splitlines()
                found += [(page, line) for line in lines if line.strip()]
    return found


def check_make(words, tmp_path):
    """Assert that a make command names a target and known variables, and starts."""
    makefile = (ROOT / "Makefile").read_text()
    known = set(re.findall(r"\b[A-Z][A-Z_]+\b|(?<=\$\()[A-Z](?=\))", makefile))
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    targets = [word for word in words if "=" not in word]
    assert settings.keys() <= known
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        if target in EVERY:
            (tmp_path / "model.pth").touch()
            arguments = settings.get("ARGS", "")
            if "--checkpoint" in arguments:
                assert re.search(r"--checkpoint runs/0\d_\w+/model\.pth", arguments)
            arguments = arguments.replace("runs/01_cpu", str(tmp_path))
            run = {**settings, "OUT": str(tmp_path), "ARGS": arguments}
            run.setdefault("DATA", "data/sample")
            launch.plan(EVERY[target], run, there=6)


def check_script(words, monkeypatch):
    """Assert that a stage's script takes these flags."""
    (name,) = [word for word in words if word.endswith("/mnist.py")]
    flags, path = words[words.index(name) :], ROOT / name
    if name.startswith("workshop/"):  # it has the flags of the exercise's stage
        path = script(find(path.parent.name).stage)
    monkeypatch.setattr("sys.argv", flags)
    if "--help" in flags:
        assert flags[1:] == ["--help"]
    else:
        load_file(name, path).parse_args()


def test_commands_in_the_pages_exist(tmp_path, monkeypatch):
    found = commands()
    assert {page for page, _ in found} >= {ROOT / page for page in blocks.PAGES}
    for page, line in found:
        try:
            command = re.sub(r"^([A-Z_]+=\S* )+(?!$)", "", line)
            first, *words = shlex.split(command, comments=True)
            if first == "make":
                check_make(words, tmp_path)
            elif Path(first).name in ("python", "torchrun") and "/mnist.py" in line:
                check_script(words, monkeypatch)
            elif first == "python" and words[0] == "-c":
                ast.parse(words[1])
            elif first == "sbatch":
                (file, *_) = [word for word in words if not word.startswith("-")]
                assert (ROOT / file).is_file()
            elif first == ".venv/bin/python":
                file = words[2] if words[:2] == ["-m", "pytest"] else words[0]
                assert (ROOT / file).is_file()
            else:
                assert line == ". .venv/bin/activate"
        except (AssertionError, SystemExit, SyntaxError, ValueError) as error:
            raise AssertionError(f"{page}: {line}: {error}") from error
