"""The exercises of the break-it lab: how one is found, and what its files say.

An exercise has a name, such as `05_no_sampler`, and these files:

    exercises/05_no_sampler.md      the page: title, stage and minutes; what you
                                    observe; your task; hints; where people met it
    tools/lab/exercises/05_no_sampler/
        start.patch                 makes the learner's script from that of the stage
        solution.patch              makes a solution from it
        check.py                    check(run): raises Wrong where a script is wrong

A missing patch changes nothing. Since the scripts are patches of the stage, an exercise
always fits the stage. tests/lab/answers has the answers that the checks are tried on.
"""

import functools
import re
import subprocess

import whatthepatch

from tools.lab.path import PARTS, PATH
from tools.run.stages import EVERY, ROOT, load_file, refuse, script

PAGES = ROOT / "exercises"
FILES = ROOT / "tools/lab/exercises"
HEAD = re.compile(r"# (.*)\n\nStage (\w+), (\d+) minutes\.")
HINT = re.compile(r"(?s)<details><summary>.*?</summary>\n\n(.*?)\n\n</details>")


class Exercise:
    """An exercise, by its name. Raises ValueError where its page has no such head."""

    def __init__(self, name):
        self.name = name
        self.number = number_of(name)
        self.page = PAGES / f"{name}.md"
        self.folder = FILES / name
        self.text = self.page.read_text()
        head = HEAD.match(self.text)
        if not head or head[2] not in EVERY.values():
            raise ValueError(f"{self.page}: no title, stage and minutes")
        self.title = head[1]
        self.stage = head[2]
        self.minutes = int(head[3])
        self.place, self.part, self.after = place_on_path(self.number)

    def chapter(self, title):
        """Return a chapter of the page."""
        found = re.search(rf"(?ms)^## {title}\n+(.*?)(?=^## |\Z)", self.text)
        if not found:
            raise ValueError(f"{self.page} has no chapter {title!r}")
        return found[1].strip()

    def hints(self):
        """Return the three hints."""
        return HINT.findall(self.chapter("Hints"))

    def without_hints(self):
        """Return the page up to the hints, for the learner's workshop."""
        return self.text.split("\n## Hints")[0].rstrip() + "\n"

    def script(self, name):
        """Return the text of the script `start`, `solution` or `stage`.

        Raises ValueError where its patch does not apply to the stage.
        """
        original = stage_text(self.stage)
        patch = self.folder / f"{name}.patch"
        if not patch.exists():
            return original
        return patched(original, patch, self.stage)

    def try_settings(self):
        """Return how `make try` runs the learner's script: TRY in check.py, a dict.

        It may have what a Setting of tools.lab.setting has.
        """
        return getattr(self.load_check(), "TRY", {})

    def prepare_try(self, folder):
        """Make the files that `make try` needs; return the script's flags for them."""
        check = self.load_check()
        return check.prepare_try(folder) if hasattr(check, "prepare_try") else []

    def load_check(self):
        """Return the module of check.py."""
        return load_file("check", self.folder / "check.py")


def number_of(name):
    """Return the number of an exercise, such as `05`, from its name."""
    return name.partition("_")[0]


def names():
    """Return the names of all exercises, in order of their numbers."""
    return sorted(path.stem for path in PAGES.glob("[0-9]*.md"))


def place_on_path(number):
    """Return where an exercise is on the path, its part, and those it builds on.

    One that is not in PATH comes last: the tests say that it is missing there.
    """
    for place, (other, part, after) in enumerate(PATH):
        if other == number:
            return place, part, after.split()
    return len(PATH), max(PARTS), []


def exercises():
    """Return all exercises, in order of their numbers."""
    return [Exercise(name) for name in names()]


def along_the_path():
    """Return all exercises, in the order of the path through them."""
    return sorted(exercises(), key=lambda one: (one.place, one.number))


def find_exercise(text):
    """Return the exercise that a person means by `4`, `04` or `04_name`, or refuse."""
    for name in names():
        number = number_of(name)
        if text in (number, number.lstrip("0"), name):
            return Exercise(name)
    where = "'make exercises' lists them, E=04 names one"
    refuse(f"there is no exercise {text!r}: {where}")


@functools.cache
def committed(stage):
    """Return the text of a stage's script as committed, or None where git has none."""
    path = script(stage)
    words = ["git", "show", f"HEAD:./{path.name}"]
    try:
        result = subprocess.run(words, cwd=path.parent, capture_output=True)
    except FileNotFoundError:
        return None
    return result.stdout.decode() if result.returncode == 0 else None


def stage_text(stage):
    """Return the script that exercises build on, without a learner's edits."""
    return committed(stage) or script(stage).read_text()


def patched(original, path, stage):
    """Return the text of a stage with the patch in a file.

    Raises ValueError where it does not apply.
    """
    (patch,) = whatthepatch.parse_patch(path.read_text())
    try:
        lines = whatthepatch.apply_diff(patch, original)
    except whatthepatch.exceptions.WhatThePatchException as error:
        raise ValueError(f"{path} does not apply to {stage}: {error}") from None
    return "\n".join(lines) + "\n"
