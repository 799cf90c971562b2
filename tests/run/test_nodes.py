"""Promise: the same scripts run on several nodes, and give the same curve."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from conftest import ENV, ROOT, call, edited, off, rows, slow
from tools.run import compare, gpus, launch
from tools.run.plan import make_plan
from tools.run.sample import cut
from tools.run.supervise import end

SIZE = 1024, 997


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def train_on_two_nodes(stage, folder, address, port):
    """Run two torchrun agents of two processes, in float64; return node 0's folder.

    The commands are the ones that make would run, with the script that sets the dtype.
    """
    if not (folder / "data").exists():
        cut(folder / "data", *SIZE)
    nodes = []
    for rank in (0, 1):
        settings = {"GPUS": "cpu", "NPROC": "2", "NNODES": "2", "NODE_RANK": str(rank)}
        settings |= {"MASTER_ADDR": address, "MASTER_PORT": port, "EPOCHS": "2"}
        settings |= {"DATA": str(folder / "data"), "OUT": str(folder / f"node{rank}")}
        plan = make_plan(stage, settings)
        command = [*plan.launcher, "tests/stages/float64.py", plan.script, *plan.flags]
        command[0] = str(ROOT / command[0])
        nodes.append(
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=ENV,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        outputs = [node.communicate(timeout=100)[0] for node in nodes]
    finally:
        for node in nodes:
            end(node.pid)
    assert [node.returncode for node in nodes] == [0, 0], outputs
    assert ": 4 processes on cpu (gloo), 64 images a step" in outputs[0]
    assert "epoch" not in outputs[1]
    return folder / "node0"


@slow
def test_two_nodes_on_loopback(trained, tmp_path):
    out = train_on_two_nodes("05_ddp_inference", tmp_path, "127.0.0.1", free_port())
    assert len(rows(out)) == 2
    distance, counts = off(out, trained("01_cpu", SIZE, float64=True))
    assert (distance <= 1e-12, counts) == (True, 0)


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


IN_NODE = """
hostname "node$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"
"""


def inside(namespaces, hosts):
    """Return the words that run a command on a node with its own name and /etc/hosts.

    `hosts` has a file for each node.
    """
    if not shutil.which("unshare"):
        pytest.skip("names of their own for two nodes need the command unshare")
    enter = ["unshare", "--uts", "--mount", "sh", "-c", IN_NODE, "sh"]
    return [
        ["ip", "netns", "exec", name, *enter, str(rank), str(hosts[rank])]
        for rank, name in enumerate(namespaces)
    ]


def start_nodes(folder, *nodes, cwd=ROOT, **common):
    """Start `make ddp` on nodes, as many as there are (prefix, settings) of each.

    `cwd` is the root of the repository on these nodes.
    """
    common = {"GPUS": "cpu", "DATA": "data/sample", "EPOCHS": "2"} | common
    common = {"NNODES": str(len(nodes)), "MASTER_PORT": free_port()} | common
    words = [sys.executable, "-m", "tools.run.launch", "04_ddp"]
    return [
        subprocess.Popen(
            [*prefix, *words],
            cwd=cwd,
            env={**ENV, "OUT": str(folder / f"out{number}"), **common, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, (prefix, settings) in enumerate(nodes)
    ]


def ends(started, timeout=60):
    """Return (status, stdout, stderr) of each of the nodes."""
    try:
        said = [node.communicate(timeout=timeout) for node in started]
        return [(n.returncode, *text) for n, text in zip(started, said, strict=True)]
    finally:
        for node in started:
            end(node.pid)


def assert_refused(outcomes, *lines):
    """Assert that each node has ended before torchrun, with its one line on stderr."""
    for (status, stdout, stderr), line in zip(outcomes, lines, strict=True):
        assert line in stderr
        assert stderr.count("\n") == 1
        assert status == 1
        assert "$ " not in stdout


RANKS = [((), {"NODE_RANK": str(rank)}) for rank in range(3)]
LOOPBACK = {"MASTER_ADDR": "127.0.0.1", "WAIT": "20"}


@slow
def test_names_that_resolve_to_loopback_do_no_harm(namespaces, trained, data, tmp_path):
    """As on Debian and Ubuntu: gloo by itself would take 127.0.1.1 on each node."""
    for rank in (0, 1):
        lines = ["127.0.0.1 localhost", f"127.0.1.1 node{rank}"]
        lines += ["10.77.0.1 node0"] * (rank == 1)
        (tmp_path / f"hosts{rank}").write_text("\n".join(lines) + "\n")
    prefixes = inside(namespaces, [tmp_path / f"hosts{rank}" for rank in (0, 1)])
    nodes = [(prefix, RANKS[rank][1]) for rank, prefix in enumerate(prefixes)]
    common = {"MASTER_ADDR": "node0", "NPROC": "1", "DATA": str(data(SIZE))}
    first, second = ends(start_nodes(tmp_path, *nodes, **common), timeout=100)
    assert (first[0], second[0]) == (0, 0), (first, second)
    assert "node 1 (node1, 10.77.0.2) is here\n" in first[1]
    assert " GLOO_SOCKET_IFNAME=veth0 " in first[1]
    assert ": 2 processes on cpu (gloo), 64 images a step" in first[1]
    assert "epoch 1" not in second[1]
    folders = tmp_path / "out0", trained("01_cpu", SIZE)
    curves = [compare.read(out / "metrics.csv") for out in folders]
    assert compare.judge(*curves, same_bits=False)[1]
    assert len(curves[0]) == 2


def test_nodes_that_do_not_come_are_named_after_wait(tmp_path):
    shared = {"NNODES": "4", "MASTER_PORT": free_port(), **LOOPBACK}
    started = start_nodes(tmp_path, RANKS[0], **shared | {"WAIT": "3"})
    started += start_nodes(tmp_path, RANKS[1], **shared)
    started += start_nodes(tmp_path, RANKS[1], NNODES="2", **LOOPBACK | {"WAIT": "1"})
    started += start_nodes(
        tmp_path / "b", RANKS[0], NNODES="2", MASTER_ADDR="192.0.2.77"
    )
    first, second, alone, elsewhere = ends(started)
    line = "node 2, 3 did not come within 3 s (WAIT=): is it started, with this MASTER_"
    assert_refused([first, second], f"node 0 of 4: {line}", f"node 1 of 4: {line}")
    assert ", 127.0.0.1) is here\nnode 0 waits for node 2, 3\n" in first[1]
    assert "node 0 waits for node 2, 3\n" in second[1]
    assert_refused(
        [alone], "Connection refused, for 1 s (WAIT=). Is node 0 started, is"
    )
    assert_refused(
        [elsewhere], "runs at MASTER_ADDR, and 192.0.2.77 is not this machine"
    )


def test_a_name_that_does_not_resolve_is_refused(tmp_path):
    outcomes = ends(start_nodes(tmp_path, *RANKS[:2], MASTER_ADDR="no.such.invalid"))
    assert_refused(outcomes, *2 * ["MASTER_ADDR=no.such.invalid: "])


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ([{}, {"NODE_RANK": "0"}], "NODE_RANK=0 is given twice: node 0 ("),
        ([{}, {}, {"NODE_RANK": "1"}], "NODE_RANK=1 is given twice: node 1 ("),
        (
            [{}, {"ARGS": "--lr 0.5"}],
            "--lr must be the same on all nodes: 0.1 on node 0",
        ),
        (
            [{}, {"NPROC": "4"}],
            "processes must be the same on all nodes: --nproc-per-no",
        ),
        ([{}, {"DATA": "cut"}], "the data must be the same on all nodes: "),
        (
            [{}, {"NNODES": "16"}],
            "nodes must be the same on all nodes: --nnodes=4 on no",
        ),
    ],
    ids=["rank 0", "rank 1", "flags", "processes", "data", "nodes"],
)
def test_nodes_that_do_not_go_together_end_at_once(settings, line, tmp_path):
    cut(tmp_path / "cut", *SIZE)
    nodes = []
    for rank, given in enumerate(settings):
        given = {"NODE_RANK": str(rank), **given}
        if "DATA" in given:
            given["DATA"] = str(tmp_path / "cut")
        nodes.append(((), given))
    outcomes = ends(start_nodes(tmp_path, *nodes, NNODES="4", **LOOPBACK))
    assert_refused(outcomes, *[line] * len(nodes))


def test_what_else_comes_to_the_port_is_ignored(tmp_path):
    port = free_port()
    nodes = start_nodes(tmp_path, RANKS[0], NNODES="2", MASTER_PORT=port, **LOOPBACK)
    lines = [b"GET / HTTP/1.1\r\n\r\n", b"[" * 60_000 + b"\n", b"x" * 100_000 + b"\n"]
    lines += [b"{}\n", b'{"rank": 1}\n', b"\xff\n", b'["rank", 1]\n', b"7\n"]
    assert nodes[0].stdout.readline().startswith("node 0 of 2 waits")
    for line in lines:
        with connect(port) as stranger, suppress(ConnectionError):
            stranger.sendall(line)
    with connect(port) as stranger:  # goes on while this one stays
        stranger.sendall(b'{"rank": "1"}\n')
        nodes += start_nodes(
            tmp_path, RANKS[1], NNODES="2", MASTER_PORT=port, ARGS="--lr 1", **LOOPBACK
        )
        assert_refused(ends(nodes), *2 * ["--lr must be the same on all nodes"])
    assert len(lines) == 8


def connect(port, seconds=10):
    """Return a connection to a port of this machine, once it is open."""
    end = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(("127.0.0.1", int(port)), timeout=seconds)
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_a_node_that_leaves_may_come_again(tmp_path):
    shared = {"NNODES": "4", "MASTER_PORT": free_port(), **LOOPBACK, "WAIT": "60"}
    (first,) = start_nodes(tmp_path, RANKS[0], **shared)
    lines = iter(first.stdout.readline, "")
    try:
        for _ in range(2):
            (second,) = start_nodes(tmp_path, RANKS[1], **shared)
            assert any("is here" in line for line in lines)
            second.send_signal(signal.SIGINT)
            _, stderr = second.communicate(timeout=10)
            assert (second.returncode, stderr) == (130, "")
            assert any("has gone" in line for line in lines)
        first.send_signal(signal.SIGINT)
        assert first.wait(timeout=10) == 130
    finally:
        end(first.pid)


FIREWALL = """
add table inet filter
add chain inet filter input {{ type filter hook input priority 0; }}
add rule inet filter input iif lo accept
add rule inet filter input ct state established accept
{open}
add rule inet filter input tcp flags syn {verdict}
"""


def close_ports(namespace, open_port, verdict):
    """Have a node refuse or drop what comes to its ports, but for one."""
    if not shutil.which("nft"):
        pytest.skip("a firewall needs nftables")
    rule = (
        f"add rule inet filter input tcp dport {open_port} accept" if open_port else ""
    )
    rules = FIREWALL.format(open=rule, verdict=verdict)
    words = ["ip", "netns", "exec", namespace, "nft", "-f", "-"]
    result = subprocess.run(words, input=rules, capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"nft: {result.stderr.splitlines()[0]}")


def in_namespaces(names):
    return [
        (["ip", "netns", "exec", name], RANKS[rank][1])
        for rank, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    ("verdict", "why"),
    [("reject with tcp reset", "Connection refused"), ("drop", "no answer")],
)
def test_a_firewall_that_opens_one_port_only_is_named(
    verdict, why, namespaces, tmp_path
):
    close_ports(namespaces[0], 29500, verdict)
    settings = {"MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29500", "WAIT": "3"}
    outcomes = ends(start_nodes(tmp_path, *in_namespaces(namespaces), **settings))
    host = socket.gethostname()
    line = (
        f"node 1 ({host}, 10.77.0.2) cannot reach node 0 ({host}, 10.77.0.1): {why}. "
    )
    line += (
        "A firewall must let all ports between nodes pass; GLOO_SOCKET_IFNAME, where"
    )
    assert_refused(outcomes, f"node 0 of 2: {line}", f"node 1 of 2: {line}")


def test_a_closed_port_and_a_wrong_address_end_after_wait(namespaces, tmp_path):
    close_ports(namespaces[0], None, "drop")
    here, there = in_namespaces(namespaces)
    common = {"NNODES": "2", "WAIT": "3"}
    started = start_nodes(tmp_path, here, there, MASTER_ADDR="10.77.0.1", **common)
    started += start_nodes(tmp_path / "other", there, MASTER_ADDR="10.77.0.9", **common)
    first, *others = ends(started)
    assert_refused(
        [first], "node 1 did not come within 3 s (WAIT=): is it started, with"
    )
    assert_refused(
        others, *2 * [": no answer, for 3 s (WAIT=). Is node 0 started, is MAS"]
    )


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
        make_plan("04_ddp", {"GPUS": "cpu", **settings})
    assert str(refusal.value).startswith(line)


def test_wait_limits_what_torchrun_waits_too():
    given = {"GPUS": "cpu", "NNODES": "2", "NODE_RANK": "1"}
    given |= {"MASTER_ADDR": "host"}
    for wait, seconds in ({}, 450), ({"WAIT": "60"}, 30), ({"WAIT": "1"}, 1):
        command = make_plan("04_ddp", {**given, **wait}).command
        words = f"--nnodes=2 --node-rank=1 --rdzv-conf=timeout={seconds} "
        assert words + "--master-addr=host --master-port=29500" in " ".join(command)


def test_master_port_is_handed_to_torchrun():
    given = {"GPUS": "cpu", "NNODES": "2", "NODE_RANK": "1"}
    given |= {"MASTER_ADDR": "host", "MASTER_PORT": "31234"}
    command = make_plan("04_ddp", given).command
    assert "--master-port=31234" in command
    assert not any("29500" in word for word in command)


def test_nodes_with_different_scripts_are_refused(tmp_path):
    """The second node has a clone in which somebody has changed the script."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "tools", clone / "tools")
    for name in ".venv", "data", "beyond":
        (clone / name).symlink_to(ROOT / name)
    edited("04_ddp", clone, ("lr=args.lr)", "lr=args.lr / 2)"))
    shared = {"NNODES": "2", "MASTER_PORT": free_port(), **LOOPBACK}
    started = start_nodes(tmp_path, RANKS[0], **shared)
    started += start_nodes(tmp_path / "b", RANKS[1], cwd=clone, **shared)
    line = "its script must be the same on all nodes: SHA-256 "
    assert_refused(ends(started), line, line)


def test_nodes_agree_on_the_backend(monkeypatch):
    """One node has fewer GPUs than processes, another enough."""
    given = {"DATA": "data/sample", "NNODES": "2", "NODE_RANK": "0", "NPROC": "2"}
    given["MASTER_ADDR"] = "host"
    said = []
    for count in 1, 2:
        monkeypatch.setattr(gpus, "count_gpus", lambda count=count: count)
        said.append(launch.fingerprint(make_plan("04_ddp", given))["--backend"])
    assert said == ["gloo", "nccl"]


def test_shell_scripts_pass_shellcheck():
    scripts = ["tools/run/slurm.sh", "tests/cluster/up.sh", ".ci/run"]
    result = call([f"{sys.prefix}/bin/shellcheck", *scripts])
    assert result.returncode == 0, result.stdout
    assert len(scripts) == 3
