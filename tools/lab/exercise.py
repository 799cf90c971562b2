"""The exercises of the break-it lab: find one and read its files.

exercises/AUTHORS.md describes the files. start.patch turns the stage's script into the
learner's, solution.patch into a solution. A missing patch changes nothing.
"""

import csv
import re
import subprocess

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

from tools.lab.setting import is_second, read_fields
from tools.run.edit import patched, read_edits
from tools.run.stages import BY_NAME, CPU_PROCESSES, ROOT, load_file, refuse, script

PARTS = {
    1: "First steps: devices, files, and a process per GPU",
    2: "Right numbers: batches, losses and counts",
    3: "In step: who waits for whom, and what stays equal",
    4: "A model in parts: layers, shards and stages",
    5: "A sequence in parts: a transformer on several ranks",
}
FILES = ROOT / "tools/lab/exercises"
HINT = re.compile(r"(?s)<details><summary>.*?</summary>\n\n(.*?)\n\n</details>")


def chapter(text, title):
    """Return a chapter of a page without its title."""
    found = re.search(rf"(?ms)^## {re.escape(title)}\n+(.*?)(?=^## |\Z)", text)
    return found[1].strip()


def further(number, stage):
    """Return the last runs of an exercise's check, as further.csv describes them.

    An answer may be right with the numbers of one run and wrong with others, so these
    are unlike those before. They have few steps, since steps take the time.
    """
    with open(FILES / "further.csv", newline="") as file:
        rows = {row.pop("exercise"): row for row in csv.DictReader(file)}
    runs = []
    for name, fields in rows["curve 2" if is_second(stage) else "curve 1"].items():
        changes = rows[number][name]
        if changes != "-":
            runs.append(read_fields(f"{fields} {changes}"))
            if stage not in CPU_PROCESSES:
                runs[-1]["processes"] = 0
    return runs


class Exercise:
    """An exercise: its page, and its folder with exercise.toml."""

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
        self.after = facts.pop("after")  # numbers of the exercises that it builds on
        self.says = facts.pop("says")  # part of the check's message for start.patch
        self.tried = facts.pop("try", {})  # Setting fields of `make try`
        self.runs = facts.pop("runs")  # of the check, with their requirements
        self.runs += further(self.number, self.stage)
        self.wanted = facts  # requirements of all runs
        self.page = ROOT / "exercises" / f"{name}.md"
        self.text = self.page.read_text()

    def chapter(self, title):
        return chapter(self.text, title)

    def hints(self):
        return HINT.findall(self.chapter("Hints"))

    def without_hints(self):
        return self.text.split("\n## Hints")[0].rstrip() + "\n"

    def script(self, name):
        """Return the source of the script `start`, `solution` or `stage`.

        Raises ValueError if its patch doesn't apply to the stage.
        """
        original = script(self.stage).read_text()
        patch = self.folder / f"{name}.patch"
        if not patch.exists():
            return original
        return patched(original, patch.read_text())

    def answers(self):
        """Return the Edits of answers.diff, whose names begin with right or wrong.

        `base` is the script to edit, start or solution, and `says` a pattern that the
        check's message must match.
        """
        return read_edits(self.folder / "answers.diff")

    def answered(self, answer):
        """Return an answer's script. Raises ValueError if the edit doesn't apply."""
        return answer.apply(self.script(answer.fields.get("base", "start")))

    def load_check(self):
        """Return the module check.py, or None if the exercise has none."""
        path = self.folder / "check.py"
        return load_file("check", path) if path.exists() else None


def along_the_path():
    """Return all exercises in the order of the path."""
    return [Exercise(path.parent.name) for path in sorted(FILES.glob("*/*.toml"))]


def find_exercise(text):
    """Return the exercise named `4`, `04` or `04_name`, or exit."""
    for one in along_the_path():
        if text in (one.number, one.number.lstrip("0"), one.name):
            return one
    refuse(f"there is no exercise {text!r}. To list them: make exercises")


def refuse_edited_stage(exercise):
    """Exit if git shows that a stage's script was edited: patches may not apply."""
    path = script(exercise.stage).relative_to(ROOT)
    words = ["git", "diff", "--name-only", "HEAD", "--", path]
    try:
        result = subprocess.run(words, cwd=ROOT, capture_output=True)
    except OSError:  # git is not installed
        return
    if result.returncode == 0 and result.stdout:
        why = f"exercise {exercise.number} needs the original"
        refuse(f"{path} was edited, but {why}. Try: git restore {path}")
