"""Run a command, and end every process that it has started when it ends.

torchrun alone does not: its ranks train on when it is killed itself. So `run_command`
starts a supervisor between the caller and the command:

    python -m tools.run.supervise LINK COMMAND...

`LINK` is the number of the open reading end of a pipe. The caller has the other end, so
the pipe closes when the caller ends, even by SIGKILL. When that happens, or when the
command ends, the supervisor kills every process that the command has started.
"""

import ctypes
import os
import select
import shlex
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


def kill(processes, seconds):
    """Kill processes, and wait for at most so many seconds until they have ended.

    Put the oldest first: torchrun would report the deaths of its ranks at length.
    """
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=seconds)


def end_children():
    """Kill all that this process has started, and what that has started in turn."""
    this = psutil.Process()
    while this.children():  # orphans may become children of this process
        kill(this.children(recursive=True), 0.2)


def end(pid):
    """Kill a process and all that it has started."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        kill([process, *process.children(recursive=True)], 5)


def print_command(environment, words):
    """Print a command as a person would type it, with the variables that it needs."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    quoted = [shlex.quote(word) for word in words]
    print(f"$ {' '.join(variables + quoted)}", flush=True)


def run_command(name, environment, words, lock=None):
    """Run a command to its end, or to Ctrl-C, and return its exit status.

    `name` is what Ctrl-C reports as stopped. `environment` is added to that of this
    process. The command holds the open file of the number `lock` until it ends. All
    that it has started ends with it, and with this process, however they end.
    """
    # Unbuffered, so that a pipe gets every line when it is printed.
    variables = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
    adopt_orphans()
    link, ours = os.pipe()
    supervisor = [sys.executable, "-m", "tools.run.supervise", str(link)]
    # In a session of its own, so that Ctrl-C reaches this process alone. It then closes
    # the pipe, and the supervisor ends the command.
    child = subprocess.Popen(
        [*supervisor, *words],
        env=variables,
        start_new_session=True,
        pass_fds=[link] if lock is None else [link, lock],
    )
    os.close(link)
    try:
        status = child.wait()
    except KeyboardInterrupt:
        os.close(ours)
        child.wait()
        print(f"\n{name}: stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    os.close(ours)
    if status < 0:  # the supervisor itself was killed
        end_children()
        return 128 - status
    return status


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
