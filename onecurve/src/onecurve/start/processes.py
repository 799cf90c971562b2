"""Start and end processes: whatever a run starts ends with it.

psutil is imported on first use, so that `onecurve --help` works without packages.
"""

import ctypes
import os
import re
import runpy
import signal
import sys
from contextlib import suppress
from pathlib import Path

# How a script declares the option of torch.distributed.launch, old or new.
LOCAL_RANK = re.compile(r"""add_argument\(\s*["'](--local[-_]rank)["']""")


def prctl(option, value):
    """Call prctl on Linux; do nothing on other systems."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def adopt_orphans():
    """Become the parent of descendants whose own parent dies."""
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def end_with_parent(by=signal.SIGTERM):
    """Send this process a signal when its parent ends."""
    prctl(1, by)  # PR_SET_PDEATHSIG


def children():
    """Return this process's children as a set of psutil.Process."""
    import psutil

    return set(psutil.Process().children())


def seconds_of(pid):
    """Return a process's CPU seconds, or 0 if it has ended."""
    import psutil

    with suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system
    return 0


def end_children(spared=()):
    """Kill all descendants except `spared` children; orphans become children."""
    import psutil

    while started := children() - set(spared):
        for child in started:
            with suppress(psutil.NoSuchProcess):
                for one in [child, *child.children(recursive=True)]:
                    with suppress(psutil.NoSuchProcess):
                        one.kill()
        psutil.wait_procs(started)


def of_launch(script, words):
    """Return the option that torch.distributed.launch adds, if a script reads it."""
    text = Path(script).read_text(errors="replace")
    found = LOCAL_RANK.search(text)
    given = found and any(word.startswith(found[1]) for word in words)
    return [f"{found[1]}={os.environ['LOCAL_RANK']}"] if found and not given else []


def run_script(job):
    """Run a job's script until it ends, or exits without an error."""
    script, *words = job.words
    sys.argv = [script, *words, *of_launch(script, words)]
    try:
        if job.module:
            runpy.run_module(job.module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(job.words[0], run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
