"""Promise: a terminal shows one progress bar, rank 0's, and no leftover lines."""

import re
import shlex
import subprocess

import pytest

from conftest import ENV, EVEN, ROOT, command, run

SECONDS = re.compile(r"\d+\.\d\d s")


@pytest.mark.slow
def test_progress_bar(data, tmp_path):
    """The `script` command runs another command in a terminal."""
    flags = ["--data", data(EVEN), "--out", tmp_path, "--epochs", 2]
    words = ["script", "--quiet", "--return", "/dev/null", "--command"]
    words += [f"stty rows 40 columns 100; {shlex.join(command('04_ddp', *flags))}"]
    result = subprocess.run(words, cwd=ROOT, env=ENV, stdout=subprocess.PIPE)
    assert result.returncode == 0
    written = result.stdout.decode()
    assert written.count("  0%|") == 2  # one per epoch, on one rank
    left = [line.rstrip("\r").rpartition("\r")[2] for line in written.split("\n")]
    expected = run("04_ddp", *flags).stdout
    assert SECONDS.sub("", "\n".join(left)) == SECONDS.sub("", expected)
