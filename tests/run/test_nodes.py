"""Promise: the same scripts run on several nodes, and give the same curve."""

import os
import shutil
import socket
import subprocess
import sys

import pytest

from conftest import ENV, ROOT, call, rows, slow, weights
from tools.run import launch
from tools.run.sample import cut

SIZE = 1024, 997


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def train_on_two_nodes(stage, folder, address, port, prefixes=((), ()), **environment):
    """Run two torchrun agents of two processes each, in float64; return node 0's folder.

    The commands are the ones that make would run, with the script that sets the dtype.
    """
    if not (folder / "data").exists():
        cut(folder / "data", *SIZE)
    nodes = []
    for rank, prefix in enumerate(prefixes):
        settings = {"GPUS": "cpu", "NPROC": "2", "NNODES": "2", "NODE_RANK": str(rank)}
        settings |= {"MASTER_ADDR": address, "MASTER_PORT": port, "EPOCHS": "2"}
        settings |= {"DATA": str(folder / "data"), "OUT": str(folder / f"node{rank}")}
        _, command = launch.plan(stage, settings)
        script = command.index(f"{stage}/mnist.py")
        command = [
            *prefix,
            *command[:script],
            "tests/stages/float64.py",
            *command[script:],
        ]
        command = [str(ROOT / word) if word.startswith(".venv") else word
                   for word in command]  # fmt: skip
        nodes.append(
            subprocess.Popen(
                command,
                cwd=ROOT,
                env={**ENV, **environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        outputs = [node.communicate(timeout=100)[0] for node in nodes]
    finally:
        for node in nodes:
            launch.end(node.pid)
    assert [node.returncode for node in nodes] == [0, 0], outputs
    assert ": 4 processes on cpu (gloo), 64 images a step" in outputs[0]
    assert "epoch" not in outputs[1]
    return folder / "node0"


def assert_same_curve(out, reference):
    for ours, theirs in zip(rows(out), rows(reference), strict=True):
        assert ours[1] == pytest.approx(theirs[1], abs=1e-12)
        assert ours[2:] == theirs[2:]
    assert len(rows(out)) == 2
    ours, theirs = weights(out), weights(reference)
    assert len(ours) == 4
    assert all((ours[k] - theirs[k]).abs().max() <= 1e-12 for k in theirs)


@slow
def test_two_nodes_on_loopback(trained, tmp_path):
    out = train_on_two_nodes("05_ddp_inference", tmp_path, "127.0.0.1", free_port())
    assert_same_curve(out, trained("01_cpu", SIZE, float64=True))


@pytest.fixture
def namespaces():
    """Two network namespaces joined by a veth pair: 10.77.0.1 and 10.77.0.2."""
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("two network namespaces need Linux, root and the command ip")
    names = [f"node{rank}-{os.getpid()}" for rank in (0, 1)]
    links = [f"v{rank}-{os.getpid()}" for rank in (0, 1)]
    commands = [f"netns add {name}" for name in names]
    commands += [f"link add {links[0]} type veth peer name {links[1]}"]
    for rank, (name, link) in enumerate(zip(names, links, strict=True)):
        commands += [
            f"link set {link} netns {name}",
            f"-n {name} link set {link} name veth0",
            f"-n {name} addr add 10.77.0.{rank + 1}/24 dev veth0",
            f"-n {name} link set veth0 up",
            f"-n {name} link set lo up",
        ]
    try:
        for command in commands:
            result = call(["ip", *command.split()])
            if result.returncode:
                pytest.skip(f"ip {command}: {result.stderr.strip()}")
        yield names
    finally:
        for name in names:
            call(["ip", "netns", "delete", name])


def test_two_nodes_in_network_namespaces(namespaces, trained, tmp_path):
    prefixes = [["ip", "netns", "exec", name] for name in namespaces]
    out = train_on_two_nodes(
        "04_ddp", tmp_path, "10.77.0.1", "29500", prefixes, GLOO_SOCKET_IFNAME="veth0"
    )
    assert_same_curve(out, trained("01_cpu", SIZE, float64=True))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"NNODES": "2"}, "several nodes need NODE_RANK and MASTER_ADDR too"),
        ({"NNODES": "2", "NODE_RANK": "0"}, "several nodes need MASTER_ADDR too"),
        ({"NNODES": "0"}, "several nodes need"),
        ({"NNODES": "x", "NODE_RANK": "0", "MASTER_ADDR": "a"}, "NNODES='x' must be"),
        (
            {"NNODES": "2", "NODE_RANK": "2", "MASTER_ADDR": "a"},
            "NODE_RANK='2' must be",
        ),
        (
            {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "x"},
            "MASTER_PORT='x' must be a port",
        ),
        (
            {"NNODES": "3", "NODE_RANK": "0", "MASTER_ADDR": "a"},
            "6 processes cannot share a batch of 64 images",
        ),
    ],
)
def test_refusals(settings, line):
    with pytest.raises(SystemExit) as refusal:
        launch.plan("04_ddp", {"GPUS": "cpu", "DATA": "data/sample", **settings})
    assert str(refusal.value).startswith(line)


def test_a_node_says_for_whom_it_waits_and_how_long(capsys):
    base = {"GPUS": "cpu", "DATA": "data/sample", "NNODES": "2", "MASTER_ADDR": "host"}
    for rank, whom in ("0", "the other 1 to come to"), ("1", "node 0 at"):
        _, command = launch.plan("04_ddp", {**base, "NODE_RANK": rank})
        line = f"node {rank} of 2 waits for {whom} host:29500, for about 15 minutes\n"
        assert capsys.readouterr().out == line
        words = f"--nnodes=2 --node-rank={rank} --master-addr=host --master-port=29500"
        assert words in " ".join(command)


def test_shell_scripts_pass_shellcheck():
    scripts = ["04_ddp/slurm.sh", "tests/cluster/up.sh", ".ci/run"]
    result = call([f"{sys.prefix}/bin/shellcheck", *scripts])
    assert result.returncode == 0, result.stdout
    assert len(scripts) == 3
