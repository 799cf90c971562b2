"""The nodes of a run meet before it starts, so that what keeps them apart gets a name.

They meet at node 0, on the port that torchrun takes afterwards. Each says who it is and
what it would run. Once all are there, each connects to every other, as gloo will. They
send lines of JSON; whatever else comes to the port is ignored.
"""

import asyncio
import json
import os
import socket
import time
from contextlib import suppress

import psutil

from tools.run.stages import refuse

OFTEN = 30  # seconds between two lines that say for whom a node waits
AGAIN = 1  # seconds until a node tries again to connect
ANSWER = 5  # seconds that one attempt may take
REACH = 20  # seconds that the nodes have to reach each other
LONGEST = 2**16  # bytes of a line
NODE = {"rank": int, "host": str, "address": str, "port": int, "settings": dict}
INTERFACE = "GLOO_SOCKET_IFNAME"
Timeout = asyncio.TimeoutError  # TimeoutError itself from Python 3.11 on


class Failure(Exception):
    """Why the nodes do not come together, in one line."""


def meet(rank, nodes, head, port, wait, settings):
    """Wait for all `nodes` at `head`:`port`, `wait` seconds at most; check them.

    `settings`, texts by name, must be the same on all. Returns what to add to the
    environment, so that gloo takes the network between them. Ends the program with one
    line where a node does not come, comes twice or differs, or cannot reach another.
    """
    me = {"rank": rank, "host": socket.gethostname(), "address": head}
    me["settings"] = settings
    part = (
        attend(me, head, port, wait) if rank else receive(me, nodes, head, port, wait)
    )
    whom = "node 0" if rank else "all others"
    say(f"node {rank} of {nodes} waits for {whom} at {head}:{port}, up to {wait} s")
    try:
        return {INTERFACE: asyncio.run(part)}
    except Failure as failure:
        refuse(printable(f"node {rank} of {nodes}: {failure}"))


async def receive(me, nodes, head, port, wait):
    """Be node 0: see who comes, compare them, and tell all how it ends."""
    try:
        listening = listen(head, port)
    except Failure:
        # If another node 0 is there it hears of this one, and both end.
        with suppress(Timeout):
            await asyncio.wait_for(attend(me, head, port, 2 * ANSWER), ANSWER)
        raise
    here, said = {}, asyncio.Queue()  # who is here, and what they say, by connection

    async def come(reader, writer):
        with suppress(asyncio.CancelledError):  # Python 3.11 would report it
            while message := await hear(reader):
                said.put_nowait((writer, message))
            said.put_nowait((writer, None))
        writer.close()

    async def tell(**message):
        await asyncio.gather(*(send(writer, message) for writer in here))

    def absent():
        ranks = {node["rank"] for node in here.values()}
        return "node " + ", ".join(str(n) for n in range(1, nodes) if n not in ranks)

    async def gather():
        while len(here) < nodes - 1:
            try:
                writer, node = await asyncio.wait_for(said.get(), OFTEN)
                if node is None and writer in here:
                    say(f"{name(here.pop(writer))} has gone")
                elif is_node(node) and writer not in here:
                    others = [me, *here.values()]
                    here[writer] = node
                    compare(others, node)
                    say(f"{name(node)} is here")
                else:
                    continue
            except Timeout:
                pass
            if len(here) < nodes - 1:
                say(line := f"node 0 waits for {absent()}")
                await tell(say=line)

    async def reach():
        door, place = stand(list(here)[-1])
        everyone = [{**me, **place}, *here.values()]
        everyone = [{**node, "settings": {}} for node in everyone]
        await tell(everyone=everyone)
        wrong, waiting = await unreached(everyone[0], everyone, wait), set(here)
        while waiting:
            writer, message = await said.get()
            if message is None and writer in here:
                raise Failure(f"{name(here.pop(writer))} has gone")
            if writer in waiting:
                wrong += message.get("wrong", [])
                waiting.remove(writer)
        door.close()
        if wrong:
            raise Failure(
                f"{'; '.join(wrong[:3])}. A firewall must let all ports between nodes "
                f"pass; {INTERFACE}, where given, must name the network between them"
            )
        return place["interface"]

    server = await asyncio.start_server(come, sock=listening, limit=LONGEST)
    try:
        await within(
            wait,
            gather(),
            lambda: (
                f"{absent()} did not come within {wait} s (WAIT=): is it started, "
                f"with this MASTER_ADDR? does the firewall here let port {port} pass?"
            ),
        )
        interface = await within(2 * REACH, reach(), lambda: "a node is silent")
        server.close()  # before the others may take it for torchrun
        await tell(go=True)
        return interface
    except Failure as failure:
        await tell(end=str(failure))
        raise
    finally:
        server.close()


async def attend(me, head, port, wait):
    """Be one of the others: come to node 0, and do what it says."""
    state = f"node 0 at {head}:{port}: no answer"

    async def come():
        nonlocal state
        spoke = time.monotonic()
        while True:
            try:
                reader, writer = await connect(head, port, ANSWER)
            except (OSError, Timeout) as error:
                state = f"node 0 at {head}:{port}: {why(error)}"
            else:
                door, place = stand(writer)
                await send(writer, {**me, **place})
                while message := await hear(reader):
                    if "say" in message:
                        say(state := message["say"])
                    elif "everyone" in message:
                        return reader, writer, door, place, message["everyone"]
                    else:
                        raise Failure(message.get("end"))
                writer.close()
                state = f"node 0 at {head}:{port} has hung up"
            if time.monotonic() > spoke + OFTEN:
                spoke = time.monotonic()
                say(f"waiting for {state}")
            await asyncio.sleep(AGAIN)

    async def reach(reader, writer, door, place, everyone):
        wrong = await unreached({**me, **place}, everyone, wait)
        await send(writer, {"wrong": wrong})
        message = await hear(reader) or {"end": "node 0 has gone"}
        door.close()
        if "end" in message:
            raise Failure(message["end"])
        return place["interface"]

    resolve(head, port)
    there = await within(
        wait,
        come(),
        lambda: (
            f"{state}, for {wait} s (WAIT=). Is node 0 started, is MASTER_ADDR its "
            "address, does the firewall there let the port pass?"
        ),
    )
    return await within(3 * REACH, reach(*there), lambda: "node 0 is silent")


async def within(seconds, part, why_not):
    """Return what a coroutine returns in time, else raise Failure(why_not())."""
    try:
        return await asyncio.wait_for(part, seconds)
    except Timeout:
        raise Failure(why_not()) from None


async def connect(address, port, seconds):
    connecting = asyncio.open_connection(
        address, port, limit=LONGEST, happy_eyeballs_delay=1
    )
    return await asyncio.wait_for(connecting, seconds)


def resolve(head, port):
    """Return the addresses of a host, or raise Failure."""
    try:
        return {found[4][0] for found in socket.getaddrinfo(head, port)}
    except OSError as error:
        raise Failure(f"MASTER_ADDR={head}: {error.strerror}") from None


def listen(head, port):
    """Return a socket that listens at every address of this machine, as torchrun will.

    Raises Failure where the port is taken, or the address is another machine's.
    """
    for address in resolve(head, port):
        with suppress(OSError):
            socket.create_server((address, 0), family=family(address)).close()
            break
    else:
        raise Failure(f"node 0 runs at MASTER_ADDR, and {head} is not this machine")
    both = socket.has_dualstack_ipv6()
    kind = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(("", port), family=kind, dualstack_ipv6=both)
    except OSError as error:
        raise Failure(f"MASTER_PORT={port}: {os.strerror(error.errno)}") from None


def stand(writer):
    """Listen where gloo will; return the socket, and a dict that says where that is.

    That is the interface that GLOO_SOCKET_IFNAME names, else that of this connection.
    By itself gloo takes the address of the host's name: 127.0.1.1 on many a machine.
    """
    own = writer.get_extra_info("sockname")[0].removeprefix("::ffff:")
    own = "127.0.0.1" if own.startswith("127.") else own
    addresses = {
        interface: [e.address for e in entries if e.family != psutil.AF_LINK]
        for interface, entries in psutil.net_if_addrs().items()
    }
    leads = next((i for i, there in addresses.items() if own in there), "")
    interface = os.environ.get(INTERFACE, "").split(",")[0] or leads
    if not addresses.get(interface):
        raise Failure(f"{INTERFACE}={interface}: here are {', '.join(addresses)}")
    address = addresses[interface][0]  # gloo takes the first
    door = socket.create_server((address, 0), family=family(address), backlog=1024)
    port = door.getsockname()[1]
    return door, {"interface": interface, "address": address, "port": port}


async def unreached(me, everyone, wait):
    """Return a list of texts, each of which names a node that `me` cannot reach."""

    async def attempt(node):
        try:
            _, writer = await connect(node["address"], node["port"], min(REACH, wait))
            writer.close()
        except (OSError, Timeout) as error:
            return f"{name(me)} cannot reach {name(node)}: {why(error)}"

    others = [node for node in everyone if node["rank"] != me["rank"]]
    return [text for text in await asyncio.gather(*map(attempt, others)) if text]


def compare(others, node):
    """Raise Failure where another has the rank of `node`, or other settings."""
    for other in others:
        if other["rank"] == node["rank"]:
            who = f"{name(other)} and {name(node)}"
            raise Failure(f"NODE_RANK={node['rank']} is given twice: {who}")
    for key, ours in others[0]["settings"].items():
        theirs = node["settings"].get(key)
        if theirs != ours:
            both = f"{ours} on {name(others[0])}, {theirs} on {name(node)}"
            raise Failure(f"{key} must be the same on all nodes: {both}")


async def hear(reader):
    """Return what the next line says, a dict; None where there is none that is ours."""
    with suppress(OSError, ValueError, RecursionError):
        message = json.loads(await reader.readline())
        return message if isinstance(message, dict) else None


async def send(writer, message):
    with suppress(OSError):
        writer.write(json.dumps(message).encode() + b"\n")
        await writer.drain()


def is_node(said):
    return said and all(isinstance(said.get(key), kind) for key, kind in NODE.items())


def name(node):
    return f"node {node['rank']} ({node['host']}, {node['address']})"


def why(error):
    if isinstance(error, OSError) and error.errno:
        return error.strerror if error.errno < 0 else os.strerror(error.errno)
    return "no answer" if isinstance(error, Timeout) else str(error)


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def say(line):
    print(printable(line), flush=True)


def printable(text):
    """Return what came over a network as a terminal may see it."""
    return "".join(c if c.isprintable() else "?" for c in str(text)[:1000])
