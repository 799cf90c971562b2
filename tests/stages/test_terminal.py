"""Promise: a terminal shows one progress bar, of rank 0, that leaves no line behind."""

import fcntl
import os
import pty
import re
import struct
import termios

from conftest import ENV, EVEN, ROOT, command, run


def in_a_terminal(words):
    """Run a command in a terminal of 100 columns; return all that it wrote there."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execvpe(words[0], list(map(str, words)), ENV)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    written = b""
    try:
        while part := os.read(terminal, 4096):
            written += part
    except OSError:  # what Linux says when the other end is closed
        pass
    os.close(terminal)
    assert os.waitpid(pid, 0)[1] == 0
    return written.decode()


def test_progress_bar(data, tmp_path):
    flags = ["--data", data(EVEN), "--out", tmp_path, "--epochs", 2]
    words = command("04_ddp", *flags)
    written = in_a_terminal(words)
    starts = written.count("  0%|")
    assert starts == 2  # one for each epoch, on one rank
    left = [line.rstrip("\r").rpartition("\r")[2] for line in written.split("\n")]
    expected = run("04_ddp", *flags).stdout
    seconds = re.compile(r"\d+\.\d\d s")
    assert seconds.sub("", "\n".join(left)) == seconds.sub("", expected)
