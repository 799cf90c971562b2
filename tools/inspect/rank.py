"""What a rank does before the script begins."""

import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tools.inspect import cpu, equal, exact, files, hooks, numbers
from tools.watch.collectives import Collectives
from tools.watch.events import Log, place

STALLED = 7  # exit status of a rank that found that no rank goes on
PATIENCE = 20  # seconds in which no rank has computed or written an event
IDLE = 0.02  # of a processor: a rank that takes less waits
TOGETHER = 10  # seconds that a rank waits for the others to have seen enough


@dataclass(frozen=True)
class Task:
    """How a script is looked at; the same on all ranks."""

    path: str  # of the script, absolute
    working: str  # the folder in which it runs
    folder: str  # where the ranks write what they see
    ranks: int
    kind: str  # watch, several or one
    scratch: str  # for temporary files


def prepare(rank, task):
    """Make this process a rank of a task; the script comes next."""
    folder = Path(task.folder)
    script = Path(task.path)
    os.chdir(task.working)
    tempfile.tempdir = task.scratch
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
        steps = equal.Steps(log, end, own)
        if task.kind == "one":
            sources = sorted(folder.parent.glob("several/steps*"))
            steps = equal.Merged(log, end, own, sources)
        exact.install(steps.drawn)
        steps.install()
    files.Files(folder / "files", log).install()
    watcher = threading.Thread(target=watch, args=(log, folder), daemon=True)
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


def watch(log, folder):
    """End this process when no rank has done anything for a while."""
    main = threading.main_thread().ident
    own = Path(log.file.name)
    while True:
        computed = time.process_time()
        time.sleep(0.5)
        if time.process_time() - computed > IDLE * 0.5:
            os.utime(own)
        latest = max(path.stat().st_mtime for path in folder.glob("rank*"))
        others = any(folder.glob("stalled*"))
        if not others and time.time() - latest < PATIENCE:
            continue
        frame = sys._current_frames().get(main)
        while frame and not log.is_script(frame):
            frame = frame.f_back
        log.write("stalled", line=frame and place(frame))
        (folder / f"stalled{own.name}").mkdir(exist_ok=True)
        time.sleep(2)  # until the others have seen that
        os._exit(STALLED)
