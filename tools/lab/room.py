"""How far a room of learners is: `make room FROM=FILE`, from the lines that they sent.

A file may be a chat with other text in it. A time such as 12:01 at the beginning of a
line counts for that line and those below, up to the next one. The last time in the
file is taken as now.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from tools.lab.exercise import along_the_path
from tools.run.stages import refuse, save_page

TIME = re.compile(r"\W*(?:[\d./-]+,?[ T])?(\d{1,2}):(\d\d)\b")
DOCTOR = re.compile(r"(\S+): (?:ready|not ready: ([^|]+))(?: \||$)")
PROGRESS = re.compile(
    r"(\S+): \d+ of \d+ solved(?: \(([\d ]+)\))?(?:, (?:begun|next): ([\d ]+))?"
)
CLOCK = 12 * 60  # minutes after which a clock may show the same time again
PAGE = Path(__file__).with_suffix(".html")


@dataclass
class Learner:
    """What somebody's last lines say. `lacks` is '' for a machine that is ready."""

    lacks: str | None = None  # None: no line of `make doctor`
    solved: list = field(default_factory=list)  # numbers of exercises
    at: str = ""  # the number of the exercise begun last, or of the next
    since: int | None = None  # minutes on the clock; None where the file has no time


def read_room(text):
    """Return {who: Learner}, and the last time in a chat, in minutes, or None."""
    learners = {}
    now = None
    for line in text.splitlines():
        time = TIME.match(line)
        if time:
            now = int(time[1]) * 60 + int(time[2])
        doctor = DOCTOR.search(line)
        progress = PROGRESS.search(line)
        if doctor:
            learner = learners.setdefault(doctor[1], Learner())
            learner.lacks = (doctor[2] or "").strip()
        elif progress:
            learner = learners.setdefault(progress[1], Learner())
            learner.solved = (progress[2] or "").split()
            at = (progress[3] or "").split()[-1:]
            if at != [learner.at]:
                learner.at = "".join(at)
                learner.since = now
    return learners, now


def summary(learners):
    """Return who is ready in a line, '' where no line says so."""
    reports = {who: one.lacks for who, one in learners.items() if one.lacks is not None}
    if not reports:
        return ""
    parts = [f"{list(reports.values()).count('')} ready"]
    parts += [f"{who}: {lacks}" for who, lacks in reports.items() if lacks]
    return "; ".join(parts)


def by_exercise(learners, now):
    """Return a line for each exercise: how many have solved it, and who is at it.

    Somebody who is at it for longer than its minutes is stuck.
    """
    solved = Counter()
    for learner in learners.values():
        solved.update(learner.solved)
    rows = []
    for exercise in along_the_path():
        names = []
        for who, learner in learners.items():
            if learner.at == exercise.number and learner.since is None:
                names.append(who)
            elif learner.at == exercise.number:
                spent = (now - learner.since) % CLOCK
                stuck = "stuck for " if spent > exercise.minutes else ""
                names.append(f"{who} ({stuck}{spent} min)")
        count = solved[exercise.number]
        if count or names:
            row = f"{exercise.number} {count:3} solved  {', '.join(names)}"
            rows.append(row.rstrip())
    return rows


def show_room(name):
    """Print how far a room is, by the lines in a file; write a page, room.html.

    The page shows what the last call found, and reads itself anew every 10 seconds.
    Refuses a file without such lines.
    """
    learners, now = read_room(Path(name).read_text())
    if not learners:
        refuse("no line is the last one of 'make doctor', 'make exercises' or 'check'")
    head = summary(learners)
    rows = by_exercise(learners, now)
    print(*[line for line in [head, *rows] if line], sep="\n")
    table = "\n".join(f"<p>{escape(row)}</p>" for row in rows)
    save_page("room.html", f"{PAGE.read_text()}<h1>{escape(head)}</h1>\n{table}\n")
