"""Promise: the same scripts run on several nodes and give the same curve."""

import re
import shlex
import socket

from conftest import EVEN, ROOT, assert_close, start


def free_port():
    """Return the number of an unused port on this machine."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_two_nodes_give_the_curve_of_stage_01(data, trained, tmp_path):
    """Use the page's two commands, here with two groups of processes."""
    page = (ROOT / "04_ddp/CLUSTERS.md").read_text()
    commands = re.findall(r"(?m)^\.venv/bin/torchrun .*$", page)
    assert len(commands) == 2
    flags = ["--data", data(EVEN), "--epochs", 2, "--out", tmp_path]
    nodes = []
    port = f"--master-port={free_port()}"
    for line in commands:
        line = line.replace("=node0", "=localhost").replace("hello.py", "mnist.py")
        program, *words = shlex.split(line)
        nodes.append(start([program, port, *words, *flags]))
    try:
        outputs = [node.communicate(timeout=200) for node in nodes]
    finally:
        for node in nodes:
            if node.poll() is None:
                node.kill()
    assert [node.returncode for node in nodes] == [0, 0], outputs
    assert ": 4 processes on cpu (gloo), 64 images a step" in outputs[0][0]
    assert outputs[1][0] == ""  # only node 0 prints
    # In float32, the ranks add in another order than stage 01.
    assert_close(tmp_path, trained("01_cpu", EVEN), apart=1e-6)
