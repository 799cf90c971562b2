"""Run a command, and leave nothing of it running, however it or this process ends."""

import os
import shlex
import subprocess
import tempfile
from contextlib import contextmanager, suppress

import psutil

from onecurve.api import adopt_orphans, end_with_parent


def end(pid):
    """Kill a process and all that it has started, parents first."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait()


def end_children(spared=()):
    """Kill what this process has started, orphans too, but for the spared children."""
    while children := set(psutil.Process().children()) - set(spared):
        for child in children:  # whose own become this process's
            end(child.pid)


def print_command(environment, words):
    """Print a command as a person would type it, with the variables that it needs."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    print("$", *variables, *map(shlex.quote, words), flush=True)


@contextmanager
def running(words, **options):
    """Start a command, a subprocess.Popen with `options`; at the end leave none of it.

    If this process is killed, torchrun gets SIGTERM, at which it ends its ranks.
    """
    adopt_orphans()
    others = psutil.Process().children()
    # In a session of its own, so that Ctrl-C reaches this process alone.
    options |= {"start_new_session": True, "preexec_fn": end_with_parent}
    child = subprocess.Popen(words, **options)
    try:
        yield child
    finally:
        end_children(spared=others)


def run_command(environment, words):
    """Run a command to its end, or to Ctrl-C, and return its exit status.

    A status below 0 is the number of a signal.
    """
    variables = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        variables.setdefault("PET_LOG_DIR", folder)  # torchrun would leave one behind
        with running(words, env=variables) as child:
            return child.wait()
