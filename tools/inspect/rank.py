"""What a rank does before the script begins."""

import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tools.inspect import cpu, equal, exact, files, hooks, numbers
from tools.watch.collectives import Collectives
from tools.watch.events import Log, place

STALLED = 7  # exit status of a rank that found that no rank goes on
PATIENCE = 20  # seconds in which no rank has written an event
TOGETHER = 10  # seconds that a rank waits for the others to have seen enough


@dataclass(frozen=True)
class Task:
    """How a script is looked at; the same on all ranks."""

    path: str  # of the script, absolute
    working: str  # the folder in which it runs
    folder: str  # where the ranks write what they see
    ranks: int
    kind: str  # watch, several or one


def prepare(rank, task):
    """Make this process a rank of a task; the script comes next."""
    folder = Path(task.folder)
    script = Path(task.path)
    os.chdir(task.working)
    sys.path.insert(0, str(script.parent))
    roots = {str(script.parent), task.working}
    log = Log(folder / f"rank{rank}", roots)
    cpu.install()
    Collectives(log).install()
    end = Ending(folder, rank, task.ranks)
    own = folder / f"steps{rank}"
    own.mkdir()
    if task.kind == "watch":
        hooks.Hooks(log, end).install()
        numbers.Numbers(log).install()
    else:
        exact.install()
        if task.kind == "several":
            equal.Steps(log, end, own).install()
        else:
            parent = folder.parent / "several"
            sources = sorted(parent.glob("steps*"))
            equal.Merged(log, end, own, sources).install()
    files.Files(folder / "files", log, roots).install()
    watcher = threading.Thread(target=watch, args=(folder, log), daemon=True)
    watcher.start()


class Ending:
    """Ends this process when all ranks have seen enough, or soon after it has itself.

    A rank that only left would break the others' connections.
    """

    def __init__(self, folder, rank, ranks):
        self.folder = folder
        self.rank = rank
        self.ranks = ranks

    def __call__(self):
        """End this process; the script is not asked."""
        (self.folder / f"enough{self.rank}").mkdir(exist_ok=True)
        end = time.monotonic() + TOGETHER
        while time.monotonic() < end:
            if len(list(self.folder.glob("enough*"))) >= self.ranks:
                break
            time.sleep(0.02)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def watch(folder, log):
    """End this process when no rank has written anything for a while."""
    main = threading.main_thread().ident
    while True:
        time.sleep(0.5)
        latest = max(path.stat().st_mtime for path in folder.glob("rank*"))
        if time.time() - latest < PATIENCE:
            continue
        frame = sys._current_frames().get(main)
        while frame and not log.is_script(frame):
            frame = frame.f_back
        log.write("stalled", line=frame and place(frame))
        time.sleep(0.5)  # until the others have found the same
        os._exit(STALLED)
