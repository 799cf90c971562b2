"""How far a room of learners is: `make room FROM=FILE`, from the lines that they sent.

A file may be a chat with other text in it. A time such as 12:01 at the beginning of a
line counts for that line and those below, up to the next one. The last time in the
file is taken as now. A roster, a name a line, tells who has sent nothing yet.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from tools.lab.exercise import along_the_path
from tools.run.stages import refuse, save_page

TIME = re.compile(r"\W*(?:[\d./-]+,?[ T])?([01]?\d|2[0-3]):([0-5]\d)\b")
MARKS = "*_`"  # with which a chat makes a name bold
NAME = rf"(\S+):[{MARKS}]* "
DOCTOR = re.compile(rf"{NAME}(?:ready \||not ready: ([^|]+)(?: \||$))")
PROGRESS = re.compile(
    rf"{NAME}\d+ of \d+ solved(?: \(([\d ]+)\))?(?:, (?:begun|next): ([\d ]+))?"
)
CLOCK = 12 * 60  # minutes after which a clock may show the same time again
PAGE = Path(__file__).with_suffix(".html")


@dataclass
class Learner:
    """What somebody's last lines say. `lacks` is '' for a machine that is ready."""

    name: str
    lacks: str | None = None  # None: no line of `make doctor`
    solved: list | None = None  # numbers of exercises; None: no line of a check
    at: str = ""  # the number of the exercise begun last, or of the next
    since: int | None = None  # minutes on the clock; None where the file has no time


@dataclass
class Room:
    """All learners, and the time in minutes, or None where a chat has none."""

    learners: dict = field(default_factory=dict)  # by name, in small letters
    now: int | None = None

    def learner(self, name):
        """Return the Learner of a name, however it is written."""
        name = name.strip().strip(MARKS).replace(" ", "_")
        return self.learners.setdefault(name.casefold(), Learner(name))

    def read(self, line):
        """Take what a line of a chat says."""
        time = TIME.match(line)
        if time:
            self.now = int(time[1]) * 60 + int(time[2])
        doctor = DOCTOR.search(line)
        progress = PROGRESS.search(line)
        if doctor:
            self.learner(doctor[1]).lacks = (doctor[2] or "").strip()
        elif progress:
            learner = self.learner(progress[1])
            learner.solved = (progress[2] or "").split()
            at = (progress[3] or "").split()[-1:]
            if at != [learner.at]:
                learner.at = "".join(at)
                learner.since = self.now

    def summary(self):
        """Yield a line that says who is ready, and one that says who is silent."""
        everybody = self.learners.values()
        reports = [one for one in everybody if one.lacks is not None]
        if reports:
            lacking = [f"{one.name}: {one.lacks}" for one in reports if one.lacks]
            yield "; ".join([f"{len(reports) - len(lacking)} ready", *lacking])
        silent = [one.name for one in everybody if one.lacks is one.solved is None]
        if silent:
            yield f"silent: {', '.join(silent)}"

    def by_exercise(self):
        """Yield a line for each exercise: how many have solved it, and who is at it.

        Somebody who is at it for longer than its minutes is stuck.
        """
        solved = Counter()
        for learner in self.learners.values():
            solved.update(learner.solved or [])
        for exercise in along_the_path():
            names = []
            for learner in self.learners.values():
                if learner.at == exercise.number:
                    names.append(learner.name + self.spent(learner, exercise))
            count = solved[exercise.number]
            if count or names:
                row = f"{exercise.number} {count:3} solved  {', '.join(names)}"
                yield row.rstrip()

    def spent(self, learner, exercise):
        """Return in words for how long a learner is at an exercise."""
        if learner.since is None:
            return ""
        minutes = (self.now - learner.since) % CLOCK
        stuck = "stuck for " if minutes > exercise.minutes else ""
        return f" ({stuck}{minutes} min)"


def read_text(name):
    """Return the text of a file, in whatever encoding a chat was saved."""
    data = Path(name).read_bytes()
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def show_room(name, roster=""):
    """Print how far a room is, by the lines in a file; write a page, room.html.

    The page shows what the last call found, and reads itself anew every 10 seconds.
    Refuses a file without such lines.
    """
    room = Room()
    for line in read_text(name).splitlines():
        room.read(line)
    if not room.learners:
        refuse("no line is the last one of 'make doctor', 'make exercises' or 'check'")
    for line in read_text(roster).splitlines() if roster else []:
        if line.strip():
            room.learner(line)
    head = list(room.summary())
    rows = list(room.by_exercise())
    print(*head, *rows, sep="\n")
    title = escape("; ".join(head))
    table = "\n".join(f"<p>{escape(row)}</p>" for row in rows)
    save_page("room.html", f"{PAGE.read_text()}<h1>{title}</h1>\n{table}\n")
