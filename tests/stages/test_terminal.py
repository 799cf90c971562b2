"""Promise: a terminal shows one progress bar, of rank 0, that leaves no line behind."""

import fcntl
import os
import pty
import re
import struct
import termios
import threading

from conftest import EVEN, run


def attach(rank, terminal):
    """Have this rank print into a terminal."""
    os.dup2(os.open(terminal, os.O_WRONLY | os.O_NOCTTY), 1)
    os.dup2(1, 2)


def in_a_terminal(stage, *flags):
    """Run a stage in a terminal of 100 columns; return all that it wrote there."""
    reader, terminal = pty.openpty()
    fcntl.ioctl(reader, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    written = []

    def read():
        try:
            while part := os.read(reader, 4096):
                written.append(part)
        except OSError:  # what Linux says when the other end is closed
            pass

    reading = threading.Thread(target=read)
    reading.start()
    try:
        result = run(stage, *flags, prepare=(attach, os.ttyname(terminal)))
    finally:
        os.close(terminal)
        reading.join()
        os.close(reader)
    assert result.returncode == 0
    return b"".join(written).decode()


def test_progress_bar(data, tmp_path):
    flags = ["--data", data(EVEN), "--out", tmp_path, "--epochs", 2]
    written = in_a_terminal("04_ddp", *flags)
    starts = written.count("  0%|")
    assert starts == 2  # one for each epoch, on one rank
    left = [line.rstrip("\r").rpartition("\r")[2] for line in written.split("\n")]
    expected = run("04_ddp", *flags).stdout
    seconds = re.compile(r"\d+\.\d\d s")
    assert seconds.sub("", "\n".join(left)) == seconds.sub("", expected)
