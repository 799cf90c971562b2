"""Promise: `make watch` judges the last saved script and restores the terminal."""

import os
import pty
import re
import select
import signal
import termios
import time

import pytest

from conftest import ENV, ROOT, call
from tools.lab.exercise import find_exercise


def wait_for(pattern, terminal):
    """Read a terminal's output until a pattern matches."""
    text = ""
    end = time.monotonic() + 300
    while not re.search(pattern, text):
        assert time.monotonic() < end, text
        if select.select([terminal], [], [], 0.1)[0]:
            text += os.read(terminal, 1).decode("latin-1")


@pytest.mark.slow
def test_a_script_is_judged_whenever_it_is_saved(tmp_path):
    env = ENV | {"WORKSHOP": str(tmp_path)}
    call(["make", "exercise", "E=06"], env=env)
    script = tmp_path / "06_same_order/mnist.py"
    for key, ending in (b"q", 0), (b"\x03", signal.SIGINT):  # Ctrl-C
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvpe("make", ["make", "-C", str(ROOT), "watch", "E=06"], env)
        before = termios.tcgetattr(terminal)
        wait_for("Not yet. Every epoch uses the same sample ord", terminal)
        wait_for("when you save", terminal)
        script.write_text(script.read_text() + "\n")
        wait_for("Running ", terminal)
        script.write_text(find_exercise("06").script("solution"))  # during the check
        wait_for("(?s)Not yet.*Solved: .*when you save", terminal)
        os.write(terminal, b"h")
        wait_for("1 of 3: ", terminal)
        script.write_text(find_exercise("06").script("start"))
        wait_for("(?s)Not yet.*when you save", terminal)
        os.write(terminal, key)
        _, ended = os.waitpid(pid, 0)
        assert (ended, termios.tcgetattr(terminal)) == (ending, before)
        os.close(terminal)
