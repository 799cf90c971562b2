"""`make watch`: judge a script whenever it is saved, and react to keys."""

import os
import select
import sys
import termios
import time
import tty
from contextlib import contextmanager

from onecurve import api
from tools.lab import commands, progress
from tools.lab.exercise import find_exercise, refuse_edited_stage
from tools.run.stages import refuse

KEYS = "\nh: hint   n: next exercise   q: quit   (judged again when you save)"
POLL = 0.1  # seconds


@contextmanager
def keys_at_once(terminal):
    """Read keys without Enter or echo; restore the terminal afterwards."""
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def watch(exercise, verdict):
    """Judge a script whenever it is saved; return the next exercise, None to quit."""
    path = progress.own_script(exercise)
    judged = None
    while True:
        # Before judging, as it may be saved meanwhile. An editor may be replacing it.
        saved = path.stat().st_mtime_ns if path.exists() else None
        if saved and saved != judged:
            judged = saved
            print(f"\n{time.strftime('%H:%M:%S')}", end="  ")
            commands.check(exercise, verdict=verdict)
            print(KEYS, flush=True)
        if not select.select([sys.stdin], [], [], POLL)[0]:
            continue
        key = os.read(sys.stdin.fileno(), 1).lower()
        following = progress.first_on_track("")
        if key == b"h":
            commands.hint(exercise)
        elif key == b"n" and following:
            commands.begin(following)
            return following
        elif key == b"n":
            print(progress.next_step())
        elif key in (b"q", b""):
            return None


def main(name):
    """Watch an exercise's script, by default the one begun last."""
    exercise = find_exercise(name) if name else progress.last_begun()
    progress.own_script(exercise)
    refuse_edited_stage(exercise)
    if not sys.stdin.isatty():
        refuse("make watch needs a terminal. To judge once: make check")
    api.start_server()  # imports PyTorch while this process does, too
    from tools.lab.judge import verdict

    with keys_at_once(sys.stdin):
        while exercise:
            exercise = watch(exercise, verdict)
