"""The exercises of the break-it lab: how one is found, and what its files say.

exercises/AUTHORS.md says which files an exercise has. Of its two patches, start.patch
makes the learner's script from that of the stage, and solution.patch a solution. A
missing patch changes nothing.
"""

import re
import subprocess

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

from tools.run.edit import patched, read_edits
from tools.run.stages import BY_NAME, ROOT, load_file, refuse, script

PARTS = {
    1: "First steps: devices, files, and a process per GPU",
    2: "Right numbers: batches, losses and counts",
    3: "In step: who waits for whom, and what stays equal",
    4: "A model in parts",
    5: "A sequence in parts: a transformer on several ranks",
}
FILES = ROOT / "tools/lab/exercises"
HINT = re.compile(r"(?s)<details><summary>.*?</summary>\n\n(.*?)\n\n</details>")


def chapter(text, title):
    """Return a chapter of a page, without its title."""
    found = re.search(rf"(?ms)^## {re.escape(title)}\n+(.*?)(?=^## |\Z)", text)
    return found[1].strip()


class Exercise:
    """An exercise: its folder, with exercise.toml, and its page."""

    def __init__(self, name):
        self.name = name
        self.number = name.partition("_")[0]
        self.folder = FILES / name
        facts = tomllib.loads((self.folder / "exercise.toml").read_text())
        self.title = facts.pop("title")
        self.stage = facts.pop("stage")
        self.file = BY_NAME[self.stage].file  # the name of the learner's script
        self.minutes = facts.pop("minutes")
        self.part = facts.pop("part")
        self.after = facts.pop("after")  # numbers of exercises
        self.says = facts.pop("says")  # a part of what the check says of start.patch
        self.tried = facts.pop("try", {})  # fields of the Setting of `make try`
        self.runs = facts.pop("runs", [])  # of the check, and what they have to equal
        self.wanted = facts  # in all runs
        self.page = ROOT / "exercises" / f"{name}.md"
        self.text = self.page.read_text()

    def chapter(self, title):
        """Return a chapter of the page."""
        return chapter(self.text, title)

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
        original = script(self.stage).read_text()
        patch = self.folder / f"{name}.patch"
        if not patch.exists():
            return original
        return patched(original, patch.read_text())

    def answers(self):
        """Return what learners may hand in: Edits named right or wrong, and why.

        `base` is what is edited, start or solution, and `says` a pattern that is found
        in what the check says of a wrong one.
        """
        return read_edits(self.folder / "answers.diff")

    def answered(self, answer):
        """Return the script of an answer. Raises ValueError if it does not fit."""
        return answer.apply(self.script(answer.fields.get("base", "start")))

    def load_check(self):
        """Return the module of check.py, or None where exercise.toml has the runs."""
        path = self.folder / "check.py"
        return load_file("check", path) if path.exists() else None


def along_the_path():
    """Return all exercises, in the order of the path through them."""
    return [Exercise(path.parent.name) for path in sorted(FILES.glob("*/*.toml"))]


def find_exercise(text):
    """Return the exercise that a person means by `4`, `04` or `04_name`, or refuse."""
    for one in along_the_path():
        if text in (one.number, one.number.lstrip("0"), one.name):
            return one
    refuse(f"there is no exercise {text!r}: 'make exercises' lists them")


def refuse_edited_stage(exercise):
    """End the program with one line if git knows another version of a stage's script.

    The exercise's patches are made for that version.
    """
    path = script(exercise.stage).relative_to(ROOT)
    words = ["git", "diff", "--name-only", "HEAD", "--", path]
    try:
        result = subprocess.run(words, cwd=ROOT, capture_output=True)
    except OSError:  # there is no git
        return
    if result.returncode == 0 and result.stdout:
        why = f"exercise {exercise.number} starts from it as it came"
        refuse(f"{path} was edited, but {why}: git restore {path}")
