"""Start-up and end of processes: what a run starts ends with it, whatever happens.

psutil is imported when a process is looked up, so that `onecurve --help` needs no
package. Linux tells a process that its parent has died; other systems do not.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress


def prctl(option, value):
    """Ask Linux for something about this process; do nothing on other systems."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def adopt_orphans():
    """Become the parent of each descendant whose own parent dies."""
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def end_with_parent(by=signal.SIGTERM):
    """Have this process get a signal as soon as its parent ends."""
    prctl(1, by)  # PR_SET_PDEATHSIG


def children():
    """Return this process's children as a set of psutil.Process."""
    import psutil

    return set(psutil.Process().children())


def seconds_of(pid):
    """Return the CPU seconds that a process has used; 0 if it has ended."""
    import psutil

    with suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system
    return 0


def end_children(spared=()):
    """Kill this process's descendants, except for the children in `spared`.

    Orphans become this process's children, so it looks again until none is left.
    """
    import psutil

    while started := children() - set(spared):
        for child in started:
            with suppress(psutil.NoSuchProcess):
                for one in [child, *child.children(recursive=True)]:
                    with suppress(psutil.NoSuchProcess):
                        one.kill()
        psutil.wait_procs(started)


def pause(*_):
    """Stop this process and its children's process groups until it continues.

    They run in sessions of their own, which a terminal's Ctrl-Z and fg do not reach.
    """
    started = [child.pid for child in children()]
    for pid in started:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)
    for pid in started:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGCONT)
