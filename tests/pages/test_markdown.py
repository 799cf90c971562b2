"""Promise: pages have their chapters, links lead somewhere, and commands exist."""

import ast
import importlib.util
import itertools
import re
import shlex
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from mdit_py_plugins.footnote import footnote_plugin
from mutants import copy

from conftest import EVEN, ROOT, call
from tools.lab.exercise import find_exercise
from tools.pages import blocks
from tools.run import gpus
from tools.run.plan import make_plan
from tools.run.sample import cut
from tools.run.stages import EVERY, folder, load_file, script

# In the order in which a learner needs them.
HEADINGS = ["The idea", "Run it", "The (?:diff from stage|script)", "What goes wrong"]
HEADINGS += ["What to try", "Before you use it in earnest"]


def pages():
    """Return all Markdown files of the repository."""
    result = call(["git", "ls-files", "-co", "--exclude-standard", "*.md"])
    found = [ROOT / name for name in result.stdout.splitlines()]
    assert {ROOT / page for page in blocks.PAGES} <= set(found)
    return [page for page in found if page.exists()]


@pytest.mark.parametrize("stage", EVERY.values())
def test_a_page_has_its_chapters_in_order(stage):
    text = (folder(stage) / "README.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    for chapter in HEADINGS:
        starts = [heading for heading in headings if re.match(chapter, heading)]
        assert starts, f"no {chapter} behind the chapters before it"
        headings = headings[headings.index(starts[0]) + 1 :]
    assert headings == []
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
    for token in MarkdownIt().use(footnote_plugin).parse(page.read_text()):
        parts = token.children or []
        for n, part in enumerate(parts):
            if part.type == "link_open":
                rest = itertools.takewhile(lambda t: t.type != "link_close", parts[n:])
                found.append(("".join(t.content for t in rest), part.attrs["href"]))
    return found


def test_links_between_pages_resolve():
    inside = []
    for page in pages():
        targets = [target for _, target in links(page)]
        inside += [(page, one) for one in targets if not one.startswith("http")]
    assert {page for page, _ in inside} >= {ROOT / "README.md", ROOT / "SCALING.md"}
    for page, target in inside:
        path, _, anchor = target.partition("#")
        path = page.parent / path if path else page
        assert path.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(path.read_text()), f"{page}: {target}"


def test_links_elsewhere_name_what_they_show():
    outside = []
    for page in pages():
        found = links(page)
        outside += [(page, *link) for link in found if link[1].startswith("http")]
    stages = {folder(stage) / "README.md" for stage in EVERY.values()}
    assert {page for page, *_ in outside} >= stages
    for page, name, _ in outside:
        assert len(name) >= 5 and not name.startswith("http"), f"{page}: {name}"
        assert name.lower() not in {"here", "this thread", "a thread", "link"}


@pytest.mark.parametrize("stage", EVERY.values())
def test_what_goes_wrong_has_sources(stage):
    """Each symptom is bold, comes first, and has a link to where people met it.

    The link may be in a footnote. No footnote is left that no symptom refers to.
    """
    text = (folder(stage) / "README.md").read_text()
    chapter = text.split("## What goes wrong\n")[1].split("\n## ")[0]
    entries, *notes = re.split(r"^\[\^(\w+)\]:", chapter, flags=re.MULTILINE)
    notes = dict(zip(notes[::2], notes[1::2], strict=True))
    items = re.split(r"^- ", entries, flags=re.MULTILINE)[1:]
    assert items
    for item in items:
        assert item.startswith("**"), f"{stage}: {item[:60]}"
        used = re.findall(r"\[\^(\w+)\]", item)
        found = item + "".join(notes.pop(name) for name in used)
        assert found.count("](http") >= max(1, len(used)), f"{stage}: {item[:60]}"
    assert notes == {}


@pytest.mark.parametrize("stage", EVERY.values())
def test_each_question_has_a_folded_answer(stage):
    text = (folder(stage) / "README.md").read_text()
    chapter = text.split("## What to try\n")[1].split("\n## ")[0]
    command = "```sh"
    answer = "<details><summary>Answer</summary>"
    found = re.findall(rf"^(?:{command}|{answer}|</details>)$", chapter, re.MULTILINE)
    letters = {command: "c", answer: "a", "</details>": "e"}
    order = "".join(letters[part] for part in found)
    assert re.fullmatch("(c?ae){2,}", order)


ACTIVATE = ". .venv/bin/activate"


def joined(text):
    """Return the lines of a block, those that end with a backslash with the next."""
    return re.sub(r" *\\\n *", " ", text).splitlines()


def blocks_of_commands():
    """Return (page, lines) of each fenced sh block of all pages."""
    found = []
    for page in pages():
        for token in MarkdownIt().parse(page.read_text()):
            if token.type == "fence" and token.info == "sh":
                lines = [line for line in joined(token.content) if line.strip()]
                found.append((page, lines))
    return found


def check_make(words, monkeypatch):
    """Assert that a make command names targets and variables, and a run is possible."""
    monkeypatch.setattr(gpus, "count_gpus", lambda: 6)
    makefile = (ROOT / "Makefile").read_text()
    known = set(re.findall(r"\b[A-Z][A-Z_]+\b|(?<=\$\()[A-Z](?=\))", makefile))
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    assert settings.keys() <= known
    for target in words:
        if "=" not in target:
            rule = rf"^([a-z_]+ )*{target}( [a-z_]+)*:"
            assert re.search(rule, makefile, re.MULTILINE), target
        if target in EVERY:
            make_plan(EVERY[target], settings)


def check_script(words, monkeypatch):
    """Assert that a stage's script takes these flags."""
    (name,) = [word for word in words if word.endswith("/mnist.py")]
    flags = words[words.index(name) :]
    path = ROOT / name
    if name.startswith("workshop/"):  # it has the flags of the exercise's stage
        path = script(find_exercise(path.parent.name).stage)
    monkeypatch.setattr("sys.argv", flags)
    if "--help" in flags:
        assert flags[1:] == ["--help"]
    else:
        load_file(name, path).parse_args()


def bare(line):
    """Return the words of a command, without the variables in front of it."""
    return shlex.split(re.sub(r"^([A-Z_]+=\S* )+(?!$)", "", line), comments=True)


def check_command(line, monkeypatch):
    """Assert that a command of a page names what there is."""
    first, *words = bare(line)
    program = Path(first).name
    if first == "make":
        check_make(words, monkeypatch)
    elif program in ("python", "torchrun") and "/mnist.py" in line:
        check_script(words, monkeypatch)
    elif program == "python" and words[0] == "-c":
        ast.parse(words[1])
    elif program == "python" and words[0] == "-m":
        assert importlib.util.find_spec(words[1])
    elif program in ("python", "torchrun", "sbatch"):
        files = [word for word in words if word.endswith((".py", ".sh"))]
        assert files and all((ROOT / file).is_file() for file in files)
    else:
        assert first in ("export", "ls") or line == ACTIVATE


def test_commands_in_the_pages_exist(monkeypatch):
    found = blocks_of_commands()
    expected = {ROOT / page for page in blocks.PAGES} - {ROOT / "SYMPTOMS.md"}
    assert {page for page, _ in found} >= expected
    for page, lines in found:
        for line in lines:
            try:
                check_command(line, monkeypatch)
            except (AssertionError, SystemExit, SyntaxError, ValueError) as error:
                raise AssertionError(f"{page}: {line}: {error}") from error


def in_a_clean_shell(lines):
    """Return why lines could not be typed into a new shell, or None."""
    allowed = {"make", "sbatch", "export", "ls", "."}
    for line in lines:
        first = bare(line)[0]
        if line == ACTIVATE:
            allowed |= {"python", "torchrun"}
        if first not in allowed and not (ROOT / first).is_file():
            return f"{first} is not there: .venv/bin/{first}, or {ACTIVATE!r} before it"
    return None


def test_commands_need_no_shell_that_was_prepared():
    wrong = [(page, in_a_clean_shell(lines)) for page, lines in blocks_of_commands()]
    assert len(wrong) > 20
    assert [one for one in wrong if one[1]] == []
    assert in_a_clean_shell(["python -c 'import torch'"])
    assert in_a_clean_shell([ACTIVATE, "python -c 'import torch'"]) is None
    text = "\n".join(page.read_text() for page in pages())
    assert re.findall(r"`((?:python|torchrun|pip|jupyter) [^`]*)`", text) == []


def test_commands_without_make_run_as_they_stand(tmp_path):
    """In a copy without results, in a shell that knows nothing, on the sample."""
    there = copy(tmp_path / "a copy")
    (there / "data/.offline").touch()
    cut(there / "data/sample", *EVEN)
    clean = {"HOME": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    clean["CUDA_VISIBLE_DEVICES"] = ""
    found = [["make cpu EPOCHS=1"]]  # whose checkpoint one of them reads
    for _, lines in blocks_of_commands():
        if ACTIVATE in lines or any(" -c " in line for line in lines):
            found.append(lines)
    assert len(found) >= 3
    for lines in found:
        words = ["sh", "-ec", "\n".join(lines)]
        result = call(words, cwd=there, env=clean, timeout=300)
        assert result.returncode == 0, f"{lines}: {result.stderr}"
