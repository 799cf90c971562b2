"""Processes that end with those who started them. Linux only: elsewhere these do less.

Without a package, since this is all that the ranks need of one.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path


def prctl(option, value):
    """Ask Linux for something about this process; elsewhere do nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def adopt_orphans():
    """Become the parent of each descendant whose own parent dies."""
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def end_with_parent(by=signal.SIGTERM):
    """Have this process get a signal as soon as its parent ends."""
    prctl(1, by)  # PR_SET_PDEATHSIG


def children():
    """Return the ids of this process's children; none where there is no /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            _, _, facts = path.read_text().rpartition(") ")  # after its name
            if int(facts.split()[1]) == os.getpid():
                found.append(int(path.parent.name))
    return found


def seconds_of(pid):
    """Return for how many seconds a process has computed; 0 where it cannot be told."""
    with suppress(OSError):
        _, _, facts = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
        ticks = sum(map(int, facts.split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")
    return 0


def end_children():
    """Kill what this process has started, and then the orphans that it has adopted."""
    while found := children():
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in found:
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def pause(*_):
    """Stop this process, and the groups that its children lead, until it continues.

    They are in sessions of their own, which a terminal's Ctrl-Z and fg do not reach.
    """
    started = children()
    for pid in started:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)
    for pid in started:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGCONT)
