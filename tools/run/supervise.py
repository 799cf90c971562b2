"""Run a command, and end with it all that it has started.

    python -m tools.run.supervise LINK COMMAND...

`LINK` is the number of the open reading end of a pipe. Whoever started this program has
the other end, so the pipe closes when that process ends, even by SIGKILL. When that
happens, or when the command ends, this program kills every process that the command has
started. torchrun alone does not: its ranks train on when it is killed itself.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress

import psutil

PDEATHSIG = 1  # options of prctl(2)
SUBREAPER = 36
OFTEN = 0.1  # seconds between two looks at the command


def prctl(option, value):
    """Ask Linux for something about this process; elsewhere do nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def adopt_orphans():
    """Become the parent of each descendant whose own parent dies. Linux only.

    Else such a process would be init's child, and nobody could tell who had started it.
    """
    prctl(SUBREAPER, 1)


def end_with_parent(by=signal.SIGTERM):
    """Have this process get a signal as soon as its parent ends. Linux only."""
    prctl(PDEATHSIG, by)


def end_children(process=None):
    """Kill the descendants of a process, by default of this one, until none is left.

    The oldest first: torchrun would report the deaths of its ranks at length.
    """
    process = process or psutil.Process()
    while True:
        with suppress(psutil.NoSuchProcess):
            family = process.children(recursive=True)
            for child in family:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            if family:
                psutil.wait_procs(family, timeout=0.2)
                continue  # orphans may have become children of this process
        return


def supervise(link, command):
    """Run a command until it ends or `link` closes; return its exit status.

    As in a shell, that is 128 and the signal's number where a signal ended it.
    """
    adopt_orphans()
    for name in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(name, signal.default_int_handler)
    child = None
    try:
        child = subprocess.Popen(command, close_fds=False)
        while child.poll() is None:
            closed, _, _ = select.select([link], [], [], OFTEN)
            if closed:
                break
    except KeyboardInterrupt:
        pass
    finally:
        for name in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            signal.signal(name, signal.SIG_IGN)
        end_children()
    status = child.returncode if child else None
    if status is None:  # it was ended here
        return 128 + signal.SIGTERM
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    # The link is this program's alone; a lock that is open here is the command's, too.
    link = int(sys.argv[1])
    os.set_inheritable(link, False)
    sys.exit(supervise(link, sys.argv[2:]))
