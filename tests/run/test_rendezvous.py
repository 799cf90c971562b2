"""Promise: the nodes of a run find each other, or all of them say what is wrong."""

import json
import os
import shutil
import signal
import socket
import sys
from contextlib import suppress
from itertools import islice

import pytest

from conftest import call, free_port, start

NODE = """
import json
import sys
from tools.run.rendezvous import rendezvous
print("found", rendezvous(*json.loads(sys.argv[1])))
"""


class Nodes:
    """Processes that take part in a rendezvous of `count` nodes on this machine."""

    def __init__(self, count):
        self.count = count
        self.port = free_port()
        self.processes = []

    def start(self, rank, host="127.0.0.1", wait=100, lr="0.1", namespace=None):
        arguments = rank, self.count, host, self.port, wait, {"--lr": lr}
        words = ["ip", "netns", "exec", namespace] if namespace else []
        words += [sys.executable, "-c", NODE, json.dumps(arguments)]
        self.processes.append(start(words))
        return self.processes[-1]

    def outcomes(self):
        """Return (status, stdout, stderr) of each, as soon as it has ended."""
        found = []
        for process in self.processes:
            outputs = process.communicate(timeout=200)
            found.append((process.returncode, *outputs))
        return found

    def assert_refused(self, line):
        """Assert that each ends with status 1, and `line` as its one line on stderr."""
        for status, _, stderr in self.outcomes():
            assert line in stderr
            assert stderr.count("\n") == 1
            assert status == 1


@pytest.fixture
def nodes():
    """Return a function that makes Nodes, which are killed after the test."""
    made = []

    def make(count):
        made.append(Nodes(count))
        return made[-1]

    yield make
    for one in made:
        for process in one.processes:
            process.kill()


def wait_for_line(process, text):
    """Wait until a process has printed a line, among its next ten."""
    assert any(line == f"{text}\n" for line in islice(process.stdout, 10))


def test_nodes_find_each_other_and_the_port_is_free_afterwards(nodes):
    run = nodes(3)
    for rank in range(3):
        run.start(rank)
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    for status, stdout, stderr in run.outcomes():
        assert (status, stderr) == (0, "")
        assert stdout.endswith(f"found {{'GLOO_SOCKET_IFNAME': '{loopback}'}}\n")
    socket.create_server(("", run.port)).close()


def test_a_node_that_does_not_come_is_named(nodes):
    run = nodes(4)
    wait_for_line(run.start(0, wait=8), "waiting for node 1, 2, 3")
    run.start(1)
    run.assert_refused("node 2, 3 did not come within 8 s. Is it started,")


def test_a_node_0_that_does_not_come_is_named(nodes):
    run = nodes(2)
    run.start(1, wait=1)
    run.assert_refused(f":{run.port}: Connection refused for 1 s. Is it started,")


def test_addresses_that_node_0_cannot_have_are_refused(nodes):
    elsewhere = nodes(2)
    elsewhere.start(0, "192.0.2.77")
    elsewhere.assert_refused("runs at MASTER_ADDR, and 192.0.2.77 is not this machine")
    unknown = nodes(2)
    for rank in (0, 1):
        unknown.start(rank, "no.such.invalid")
    unknown.assert_refused("MASTER_ADDR=no.such.invalid: ")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_given_twice(nodes, rank):
    run = nodes(3)
    for number in {0, rank}:
        run.start(number)
    run.start(rank)
    run.assert_refused(f"NODE_RANK={rank} is given twice: node {rank} (")


def test_nodes_with_other_settings_end_before_the_last_one_comes(nodes):
    run = nodes(4)
    run.start(0)
    run.start(1, lr="0.5")
    run.assert_refused("--lr must be the same on all nodes: 0.1 on node 0 (")


def test_strangers_at_the_port_do_no_harm(nodes):
    run = nodes(2)
    wait_for_line(run.start(0), "waiting for node 1")
    lines = [b"GET / HTTP/1.1\r\n\r\n", b"x" * 100_000, b"\xff\n", b"[{}]\n", b"1\n"]
    for line in lines:
        stranger = socket.create_connection(("127.0.0.1", run.port), timeout=60)
        with stranger, suppress(ConnectionError):
            stranger.sendall(line)
    with socket.create_connection(("127.0.0.1", run.port), timeout=60):  # stays
        run.start(1)
        assert [status for status, _, _ in run.outcomes()] == [0, 0]


def test_another_program_at_the_port_is_named(nodes):
    run = nodes(2)
    with socket.create_server(("127.0.0.1", run.port), backlog=100):
        run.start(0)
        run.assert_refused(f"MASTER_PORT={run.port}: Address already in use")


def test_a_node_that_is_stopped_may_come_again(nodes):
    run = nodes(3)
    first = run.start(0)
    stopped = run.start(1)
    wait_for_line(first, "waiting for node 2")
    stopped.send_signal(signal.SIGINT)
    wait_for_line(first, "waiting for node 1, 2")
    for rank in (1, 2):
        run.start(rank)
    statuses = [status for status, _, _ in run.outcomes()]
    assert statuses == [0, -signal.SIGINT, 0, 0]


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


FIREWALL = """
add table inet filter
add chain inet filter input {{ type filter hook input priority 0; }}
add rule inet filter input iif lo accept
add rule inet filter input ct state established accept
add rule inet filter input tcp dport {open_port} accept
add rule inet filter input tcp flags syn {verdict}
"""


def close_ports(namespace, open_port, verdict):
    """Have a node refuse or drop what comes to its ports, but for one."""
    if not shutil.which("nft"):
        pytest.skip("a firewall needs nftables")
    rules = FIREWALL.format(open_port=open_port, verdict=verdict)
    words = ["ip", "netns", "exec", namespace, "nft", "-f", "-"]
    result = call(words, input=rules)
    if result.returncode:
        pytest.skip(f"nft: {result.stderr.splitlines()[0]}")


def test_two_machines_find_the_network_between_them(nodes, namespaces):
    """On Debian and Ubuntu a machine may resolve its own name to 127.0.1.1."""
    run = nodes(2)
    run.start(0, "127.0.1.1", namespace=namespaces[0])
    run.start(1, "10.77.0.1", namespace=namespaces[1])
    for status, stdout, _ in run.outcomes():
        assert status == 0
        assert stdout.endswith("found {'GLOO_SOCKET_IFNAME': 'veth0'}\n")


@pytest.mark.parametrize(
    ("verdict", "why"),
    [("reject with tcp reset", "Connection refused"), ("drop", "no answer")],
)
def test_a_firewall_that_opens_one_port_only_is_named(nodes, namespaces, verdict, why):
    run = nodes(2)
    close_ports(namespaces[0], run.port, verdict)
    for rank, name in enumerate(namespaces):
        run.start(rank, "10.77.0.1", namespace=name)
    here = socket.gethostname()
    run.assert_refused(
        f"node 1 ({here}) cannot reach node 0 ({here}) at 10.77.0.1: {why}. A firewall "
        "must let all ports between nodes pass; GLOO_SOCKET_IFNAME, if set, must name"
    )
