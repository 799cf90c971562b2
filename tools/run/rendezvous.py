"""Let the nodes of a run find each other before torchrun starts.

torchrun alone waits half an hour for a node that never comes, and does not say which
one is missing. Here node 0 hosts a `TCPStore` on the port that torchrun takes later.
Every node writes its own entry and reads the entries of all others. The first node that
finds an error writes it into the store, so every node ends with the same sentence.
"""

import json
import os
import socket
import threading
import time
from contextlib import contextmanager, suppress
from datetime import timedelta

import psutil

from tools.run.stages import refuse

INTERFACE = "GLOO_SOCKET_IFNAME"
POLL = 0.1  # seconds between two looks at the store
REMIND = 30  # seconds between two lines that say which nodes are missing
ANSWER = 5  # seconds that a connection may take
REACH = 60  # seconds that the nodes have to reach each other
FAILURE = "failure"  # key of the sentence with which all nodes end


class Failure(Exception):
    """Why the nodes cannot train together, in one line."""


def rendezvous(rank, nodes, host, port, wait, fingerprint):
    """Wait at most `wait` seconds until all nodes are here and can reach each other.

    `host` and `port` are node 0's. `fingerprint` maps the name of each setting that
    must be equal on all nodes to a text. Returns the environment variable that makes
    gloo use the network between the nodes. Ends the program with one line if a node is
    missing, has another's rank, has other settings, or cannot reach another.
    """
    import torch.distributed  # noqa: F401  # takes seconds, which do not count

    me = f"node {rank} of {nodes}"
    print(f"{me} waits for the others at {host}:{port}, up to {wait} s", flush=True)
    try:
        with quiet():
            interface = Rendezvous(rank, nodes, host, port, wait).run(fingerprint)
    except Failure as failure:
        refuse(f"{me}: {failure}")
    return {INTERFACE: interface}


class Rendezvous:
    """One node's view of the rendezvous."""

    def __init__(self, rank, nodes, host, port, wait):
        self.rank = rank
        self.nodes = nodes
        self.host = host
        self.port = port
        self.wait = wait
        self.store = None
        self.hosts_store = False
        self.own_address = host  # as the others see it
        self.address_of_node_0 = host  # as this node sees it
        self.set_deadline(wait)

    def set_deadline(self, seconds):
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds
        self.reminder = time.monotonic() + REMIND

    def run(self, fingerprint):
        """Return the name of this node's network interface; raises Failure."""
        self.open_store()
        name = f"node {self.rank} ({socket.gethostname()}, {self.own_address})"
        try:
            self.store.add("joined", 1)
            entries = self.join(name, fingerprint)
            return self.check_network(entries)
        except Failure as failure:
            raise self.publish(failure) from None
        except KeyboardInterrupt:
            self.publish(Failure(f"{name} was stopped"))
            raise
        except RuntimeError:
            raise Failure("node 0 has ended") from None
        finally:
            self.close_store()

    def open_store(self):
        """Host the store on node 0, connect to it on the others; raises Failure."""
        try:
            found = socket.getaddrinfo(self.host, self.port)
        except OSError as error:
            raise Failure(f"MASTER_ADDR={self.host}: {error.strerror}") from None
        if self.rank > 0:
            return self.connect()
        if any(find_interface(entry[4][0]) for entry in found):
            with suppress(RuntimeError):
                self.store = tcp_store(self.host, self.port, is_master=True)
                self.hosts_store = True
                return None
            why = f"MASTER_PORT={self.port}: Address already in use"
        else:
            why = f"node 0 runs at MASTER_ADDR, and {self.host} is not this machine"
        # If another node 0 is running, both of them must end.
        self.set_deadline(ANSWER)
        with suppress(Failure):
            self.connect()
        if not self.store or not self.store.check(["rank 0"]):
            raise Failure(why)

    def connect(self):
        """Connect to the store as soon as node 0 has opened it; raises Failure."""
        place = (self.host, self.port)
        while True:
            seconds = max(0.1, min(ANSWER, self.deadline - time.monotonic()))
            try:
                # A TCPStore does not say why it cannot connect. A socket does.
                with socket.create_connection(place, timeout=seconds) as connection:
                    self.own_address = plain(connection.getsockname()[0])
                    self.address_of_node_0 = plain(connection.getpeername()[0])
                self.store = tcp_store(self.host, self.port, is_master=False)
                return
            except OSError as error:
                why = error.strerror or "no answer"
            except RuntimeError:
                why = "another program answers"
            self.pause(f"node 0 at {self.host}:{self.port} ({why})")

    def pause(self, missing):
        """Sleep for a moment; raises Failure when the time for `missing` is up."""
        if time.monotonic() > self.deadline:
            raise Failure(
                f"{missing} did not answer within {self.seconds} s (WAIT={self.wait}). "
                "Is it started, with this MASTER_ADDR? Does node 0's firewall let port "
                f"{self.port} pass?"
            )
        if time.monotonic() > self.reminder:
            print(f"waiting for {missing}", flush=True)
            self.reminder += REMIND
        time.sleep(POLL)

    def join(self, name, fingerprint):
        """Return the entries of all nodes, by rank; raises Failure if they disagree."""
        if self.store.add(f"rank {self.rank}", 1) > 1:
            other = json.loads(self.store.get(f"entry {self.rank}"))["name"]
            raise Failure(f"NODE_RANK={self.rank} is given twice: {other} and {name}")
        entry = {"name": name, "settings": fingerprint}
        entry["node 0"] = self.address_of_node_0
        return self.exchange("entry", entry, check=compare)

    def exchange(self, key, value, check=None):
        """Write a value; return the values of all nodes, by rank.

        Calls `check(values, rank)` with those that are there when `rank` is added.
        """
        self.store.set(f"{key} {self.rank}", json.dumps(value))
        values = {}
        while len(values) < self.nodes:
            if self.store.check([FAILURE]):
                raise Failure(self.store.get(FAILURE).decode())
            missing = [rank for rank in range(self.nodes) if rank not in values]
            there = [rank for rank in missing if self.store.check([f"{key} {rank}"])]
            for rank in there:
                values[rank] = json.loads(self.store.get(f"{key} {rank}"))
                if check:
                    check(values, rank)
            if not there:
                self.pause(f"node {', '.join(map(str, missing))}")
        return [values[rank] for rank in range(self.nodes)]

    def check_network(self, entries):
        """Connect to every other node, as gloo will; return this node's interface.

        gloo alone would take the address of the host's name, which is 127.0.1.1 on many
        machines. Raises Failure if a node cannot reach another.
        """
        own = self.own_address if self.rank > 0 else entries[-1]["node 0"]
        given = os.environ.get(INTERFACE, "").split(",")[0]
        interface = given or find_interface(own)
        if interface not in psutil.net_if_addrs() or not addresses_of(interface):
            known = ", ".join(psutil.net_if_addrs())
            raise Failure(f"{INTERFACE}={interface}: this machine has {known}")
        address = addresses_of(interface)[0]  # gloo takes the first
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.set_deadline(REACH)
        with socket.create_server((address, 0), family=family, backlog=1024) as server:
            servers = self.exchange("server", server.getsockname()[:2])
            for rank, place in enumerate(servers):
                try:
                    socket.create_connection(tuple(place), timeout=ANSWER).close()
                except OSError as error:
                    one = entries[self.rank]["name"]
                    other = entries[rank]["name"]
                    raise Failure(
                        f"{one} cannot reach {other} at {place[0]}: "
                        f"{error.strerror or 'no answer'}. A firewall must let all "
                        f"ports between nodes pass; {INTERFACE}, if set, must name the "
                        "network between them"
                    ) from None
            self.exchange("reached all", True)
        return interface

    def publish(self, failure):
        """Tell the other nodes why this one ends; return the first failure of all."""
        with suppress(RuntimeError):
            first = self.store.compare_set(FAILURE, "", str(failure))
            return Failure(first.decode())
        return failure

    def close_store(self):
        """Free the port for torchrun: node 0 closes the store once all have left it.

        The others wait for that. Their torchrun could connect to this store otherwise.
        """
        deadline = time.monotonic() + ANSWER
        with suppress(RuntimeError):  # on the others when node 0 has closed the store
            left = self.store.add("left", 1)
            while time.monotonic() < deadline:
                if self.hosts_store and left >= self.store.add("joined", 0):
                    break
                time.sleep(POLL / 2)
                left = self.store.add("left", 0)
        self.store = None


def tcp_store(host, port, is_master):
    """Return a TCPStore; raises RuntimeError if there is none, or the port is taken.

    A thread makes it, because a TCPStore waits forever for a program that is silent.
    """
    from torch.distributed import TCPStore  # here, because that import takes seconds

    made = []

    def make():
        limit = timedelta(seconds=ANSWER)
        options = {"is_master": is_master, "timeout": limit, "wait_for_workers": False}
        with suppress(RuntimeError):
            made.append(TCPStore(host, port, **options))

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    thread.join(2 * ANSWER)
    if not made:
        raise RuntimeError(f"no TCPStore at {host}:{port}")
    return made.pop()


def compare(entries, rank):
    """Report a node that has joined; raises Failure if two have different settings."""
    print(f"{entries[rank]['name']} is here", flush=True)
    first = entries[min(entries)]
    for other in entries.values():
        for name, expected in first["settings"].items():
            found = other["settings"].get(name)
            if found != expected:
                both = f"{expected} on {first['name']}, {found} on {other['name']}"
                raise Failure(f"{name} must be the same on all nodes: {both}")


def addresses_of(interface):
    """Return the addresses of a network interface of this machine."""
    entries = psutil.net_if_addrs()[interface]
    return [entry.address for entry in entries if entry.family != psutil.AF_LINK]


def find_interface(address):
    """Return the network interface that has an address; None if there is none."""
    for interface in psutil.net_if_addrs():
        if plain(address) in addresses_of(interface):
            return interface
    return None


def plain(address):
    """Return an address as psutil writes it; all of 127.* is the loopback interface."""
    address = address.removeprefix("::ffff:")
    return "127.0.0.1" if address.startswith("127.") else address


@contextmanager
def quiet():
    """Drop what C++ writes to stderr: TCPStore logs a stack for each failed attempt."""
    stderr = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)
