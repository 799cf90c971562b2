"""Let the nodes of a run find each other before torchrun starts.

torchrun alone waits half an hour for a node that never comes, and does not say which
one is missing. Here node 0 listens on the port that torchrun takes later, and the other
nodes connect to it. Each sends a line of JSON, and node 0 sends all lines to all nodes.
So if one node finds an error, every node ends with the same sentence.
"""

import json
import os
import select
import socket
import time
from contextlib import suppress

import psutil

from tools.run.stages import refuse

INTERFACE = "GLOO_SOCKET_IFNAME"
ANSWER = 5  # seconds that a connection may take, or the first line on it
REACH = 60  # seconds that a node has to reach all others
ADVICE = "Is it started, with this MASTER_ADDR? Does node 0's firewall let it in?"


class Failure(Exception):
    """Why the nodes cannot train together, in one line."""


def rendezvous(rank, nodes, host, port, wait, fingerprint):
    """Wait at most `wait` seconds until all nodes are here and can reach each other.

    `host` and `port` are node 0's. `fingerprint` maps the name of each setting that
    must be equal on all nodes to a text. Returns the environment variable that makes
    gloo use the network between the nodes. Ends the program with one line if a node is
    missing, has another's rank, has other settings, or cannot reach another.
    """
    me = f"node {rank} of {nodes}"
    print(f"{me} waits for the others at {host}:{port}, up to {wait} s", flush=True)
    name = f"node {rank} ({socket.gethostname()})"
    entry = {"rank": rank, "name": name, "settings": fingerprint}
    group = Group(host, port, wait, entry)
    try:
        socket.getaddrinfo(host, port)
        if rank == 0:
            group.gather(nodes)
        else:
            group.join()
        interface = check_network(group, name)
    except Failure as failure:
        refuse(f"{me}: {failure}")
    except socket.gaierror as error:
        refuse(f"{me}: MASTER_ADDR={host}: {error.strerror}")
    for link in group.links:
        link.close()
    return {INTERFACE: interface}


class Group:
    """The nodes as one of them sees them: node 0 sees all, the others see node 0."""

    def __init__(self, host, port, wait, entry):
        self.host = host  # node 0's
        self.port = port
        self.wait = wait
        self.deadline = time.monotonic() + wait
        self.entry = entry  # what the others need to know about this node
        self.links = {}  # connection to another node -> that node's entry
        self.address = None  # this node's, as the others see it

    def gather(self, nodes):
        """Wait for all others on node 0, then free the port; raises Failure."""
        try:
            with self.listen() as listener:
                while len(self.links) < nodes - 1:
                    self.wait_for_one(listener, nodes)
        except Failure as failure:
            self.tell([{"failure": str(failure)}])
            raise
        self.tell([])

    def listen(self):
        """Return node 0's socket; raises Failure if MASTER_ADDR is another's."""
        found = socket.getaddrinfo(self.host, self.port)
        if any(interface_of(plain(place[0])) for *_, place in found):
            dual = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if dual else socket.AF_INET
            options = {"family": family, "backlog": 1024, "dualstack_ipv6": dual}
            try:
                return socket.create_server(("", self.port), **options)
            except OSError as error:
                why = f"MASTER_PORT={self.port}: {error.strerror}"
        else:
            why = f"node 0 runs at MASTER_ADDR, and {self.host} is not this machine"
        # If another node 0 is running, both have to end.
        with suppress(OSError, ValueError):
            check(receive(self.connect(ANSWER)))
        raise Failure(why)

    def wait_for_one(self, listener, nodes):
        """Wait until a node comes or goes; raises Failure if that takes too long."""
        ranks = [entry["rank"] for entry in self.links.values()]
        absent = [str(rank) for rank in range(1, nodes) if rank not in ranks]
        missing = f"node {', '.join(absent)}"
        print(f"waiting for {missing}", flush=True)
        left = max(self.deadline - time.monotonic(), 0)
        ready, _, _ = select.select([*self.links, listener], [], [], left)
        if not ready:
            raise Failure(f"{missing} did not come within {self.wait} s. {ADVICE}")
        for one in ready:
            if one is listener:
                link, _ = listener.accept()
                self.let_in(link)
            else:  # this node was stopped, and may come again
                del self.links[one]

    def let_in(self, link):
        """Add the node at a connection; raises Failure if it does not fit."""
        link.settimeout(ANSWER)
        try:
            (entry,) = receive(link)
            failure = compare([self.entry, *self.links.values()], entry)
        except (OSError, ValueError, LookupError, TypeError):  # a stranger
            return
        link.settimeout(REACH)
        self.address = plain(link.getsockname()[0])
        self.links[link] = entry
        if failure:
            raise Failure(failure)

    def join(self):
        """Wait until node 0 is there and has found all others; raises Failure."""
        while not self.links:
            try:
                self.links[self.connect(self.wait + REACH)] = {"name": "node 0"}
            except OSError as error:
                if time.monotonic() > self.deadline:
                    place = f"node 0 at {self.host}:{self.port}"
                    why = f"{error.strerror or 'no answer'} for {self.wait} s"
                    raise Failure(f"{place}: {why}. {ADVICE}") from None
                time.sleep(0.1)
        check(self.hear())

    def connect(self, seconds):
        """Return a new connection to node 0; raises OSError."""
        link = socket.create_connection((self.host, self.port), timeout=ANSWER)
        link.settimeout(seconds)
        self.address = plain(link.getsockname()[0])
        send(link, [self.entry])
        return link

    def share(self, **value):
        """Return the values of all nodes; raises Failure if one is a failure."""
        if self.entry["rank"] > 0:
            self.tell([value])
            return check(self.hear())
        values = [value, *self.hear()]
        self.tell(values)
        return check(values)

    def hear(self):
        """Return the values from each node that this one sees, a list."""
        values = []
        for link, entry in self.links.items():
            try:
                values += receive(link)
            except (OSError, ValueError):
                values.append({"failure": f"{entry['name']} has gone"})
        return values

    def tell(self, values):
        """Send a list of values to each node that this one sees."""
        for link in self.links:
            with suppress(OSError):  # if it has gone, `hear` says so
                send(link, values)


def send(link, values):
    link.sendall(json.dumps(values).encode() + b"\n")


def receive(link):
    """Return the next line; raises OSError or ValueError if no node sends one."""
    with link.makefile() as file:
        return json.loads(file.readline(2**20))


def check(values):
    """Return values; raises Failure if one of them is a failure."""
    for value in values:
        if value.get("failure"):
            raise Failure(value["failure"])
    return values


def compare(others, entry):
    """Return why a node cannot join the others, of which the first is node 0, or ''."""
    for other in others:
        if other["rank"] == entry["rank"]:
            both = f"{other['name']} and {entry['name']}"
            return f"NODE_RANK={entry['rank']} is given twice: {both}"
    first = others[0]
    for name, expected in first["settings"].items():
        found = entry["settings"].get(name)
        if found != expected:
            both = f"{expected} on {first['name']}, {found} on {entry['name']}"
            return f"{name} must be the same on all nodes: {both}"
    return ""


def check_network(group, name):
    """Connect to every node, as gloo will; return the name of this node's interface.

    gloo alone would take the address of the host's name, which is 127.0.1.1 on many
    machines. Raises Failure if a node cannot reach another.
    """
    given = os.environ.get(INTERFACE, "").split(",")[0]
    interface = given or interface_of(group.address)
    addresses = addresses_of(interface)
    if not addresses:
        known = ", ".join(psutil.net_if_addrs())
        group.share(failure=f"{INTERFACE}={interface}: {name} has {known}")
    family = socket.AF_INET6 if ":" in addresses[0] else socket.AF_INET
    place = (addresses[0], 0)  # gloo takes the first, too
    with socket.create_server(place, family=family, backlog=1024) as server:
        values = group.share(name=name, place=server.getsockname()[:2])
        group.share(failure=out_of_reach(name, values))
    return interface


def out_of_reach(name, values):
    """Return to which node this one cannot connect, and why, or ''."""
    for value in values:
        host, port = value["place"]
        try:
            socket.create_connection((host, port), timeout=ANSWER).close()
        except OSError as error:
            why = error.strerror or "no answer"
            return (
                f"{name} cannot reach {value['name']} at {host}: {why}. A firewall "
                f"must let all ports between nodes pass; {INTERFACE}, if set, must "
                "name the network between them"
            )
    return ""


def addresses_of(interface):
    """Return the addresses of a network interface; none if there is no such one."""
    entries = psutil.net_if_addrs().get(interface, [])
    return [entry.address for entry in entries if entry.family != psutil.AF_LINK]


def interface_of(address):
    """Return the network interface that has an address; None if there is none."""
    for interface in psutil.net_if_addrs():
        if address in addresses_of(interface):
            return interface
    return None


def plain(address):
    """Return an address as psutil writes it; all of 127.* is the loopback interface."""
    address = address.removeprefix("::ffff:")
    return "127.0.0.1" if address.startswith("127.") else address
