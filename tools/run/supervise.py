"""Run a command and leave none of its processes, however it or this process ends."""

import os
import shlex
import subprocess
import tempfile
from contextlib import contextmanager

from onecurve import api


def print_command(environment, words):
    """Print a command as a user would type it, with the variables it needs."""
    variables = [f"{name}={value}" for name, value in environment.items()]
    print("$", *variables, *map(shlex.quote, words), flush=True)


@contextmanager
def running(words, **options):
    """Start a command with Popen's `options`; at the end, kill all its processes.

    If this process is killed, torchrun gets SIGTERM and ends its ranks.
    """
    api.adopt_orphans()
    others = api.children()
    # In its own session, so that Ctrl-C reaches only this process.
    options |= {"start_new_session": True, "preexec_fn": api.end_with_parent}
    child = subprocess.Popen(words, **options)
    try:
        yield child
    finally:
        api.end_children(spared=others)


def run_command(environment, words):
    """Run a command to its end or to Ctrl-C; return its exit status.

    A negative status is the number of a signal.
    """
    variables = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        variables.setdefault("PET_LOG_DIR", folder)  # torchrun would leave one behind
        with running(words, env=variables) as child:
            return child.wait()
