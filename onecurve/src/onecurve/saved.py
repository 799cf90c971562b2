"""What a checkpoint lacks, of what a run goes on by."""

import linecache
import re

import torch

from onecurve.events import bare, digest, tensors_in
from onecurve.findings import some
from onecurve.replace import replace

GOES_ON = r"resum|torch\.load|load_state_dict"  # in a script
WHEN = "epoch|step|iter"  # in names of what a checkpoint counts
HELD = {  # what a run goes on by, in the names that a checkpoint holds
    "optimizer": re.compile("optim|param_groups").search,
    "scheduler": re.compile("sched|last_epoch").search,
}


class Saved:
    """Writes the event `saved` to a log: what a file lacks that the rank saves.

    What it lacks is asked of others: the networks called for training, what optimizers
    have changed, {name: parameter}, and which of them and of schedulers have a state.
    """

    def __init__(self, log, networks, learned, has_state):
        self.log = log
        self.networks = networks
        self.learned = learned
        self.has_state = has_state  # a set of "optimizer" and "scheduler"
        self.begun = {}  # id of a network -> its buffers before training, digests
        self.used = {}  # module without parameters -> (the same, how it was used)

    def install(self):
        """Put the methods below in place."""
        replace("torch:save", self.save)
        replace("torch.distributed.checkpoint:save", self.save_parts)

    def training_begins(self, network):
        """Before the first pass of a network for training."""
        self.begun[id(network)] = buffers_of(network)

    def module_used(self, module):
        """Remember a module that has buffers alone, and whether with gradients."""
        if next(module.buffers(), None) is None:
            return
        if module not in self.used:
            self.used[module] = buffers_of(module), set()
        _, uses = self.used[module]
        uses.add(torch.is_grad_enabled())

    def save(self, original, obj, *args, **options):
        """Around torch.save."""
        self.write_lacks(obj)
        return original(obj, *args, **options)

    def save_parts(self, original, state_dict, *args, **options):
        """Around the saving of a distributed checkpoint."""
        self.write_lacks(resolved(state_dict))
        return original(state_dict, *args, **options)

    def write_lacks(self, obj):
        """Write down what an object that is saved lacks."""
        frame = self.log.frame()
        path = frame.f_code.co_filename if frame else ""
        lacks = []
        if isinstance(obj, dict):
            if says_when(obj) and is_to_go_on(path):
                lacks += states_lacking(obj, self.has_state)
            if parameters_with_state(obj) >= len(self.learned):
                lacks += named("parameter", parameters_lacking(self.learned, obj))
        lacks += named("buffer", self.buffers_lacking(obj))
        if lacks:
            self.log.write("saved", line=self.log.line(), lacks=lacks)

    def buffers_lacking(self, obj):
        """Return the names of buffers that an object lacks, though it has a network."""
        lacks = []
        has_network = False
        for network in self.networks:
            held = names_beside(network, obj)
            if held:
                has_network = True
                lacks += buffers_lacking(network, self.begun[id(network)], held)
        held = {bare(name) for name in names_below(obj)}
        for module, (begun, uses) in self.used.items():
            if has_network and len(uses) == 2:
                lacks += buffers_lacking(module, begun, held)
        return lacks


def named(kind, names):
    """Return a list that tells the first of some names, [] where there is none."""
    return [f"{kind} {some(names)}"] if names else []


def says_when(saved):
    """Return whether a checkpoint has weights, and says when it was written."""
    counts = any(type(saved[one]) is int and re.search(WHEN, str(one)) for one in saved)
    return counts and any(tensors_in(value) for value in saved.values())


def resolved(state_dict):
    """Return what a distributed checkpoint is made of: the states of its parts.

    As one dict, where a single part has all.
    """
    found = {}
    for name, one in state_dict.items():
        found[name] = one.state_dict() if hasattr(one, "state_dict") else one
    only = next(iter(found.values()), None)
    return only if len(found) == 1 and isinstance(only, dict) else found


def is_to_go_on(path):
    """Return whether the script in a file says that a run may go on."""
    return re.search(GOES_ON, "".join(linecache.getlines(path)))


def dicts_below(value):
    """Yield the dicts in dicts and lists, however deep, and the value if it is one."""
    if isinstance(value, dict):
        yield value
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for one in value:
        yield from dicts_below(one)


def names_below(value):
    """Yield the names in all of the dicts in dicts and lists."""
    for one in dicts_below(value):
        yield from map(str, one)


def states_lacking(saved, wanted):
    """Return which states, "optimizer" or "scheduler", a checkpoint does not name."""
    names = " ".join(names_below(saved))
    return [one for one in sorted(wanted) if not HELD[one](names)]


def parameters_with_state(saved):
    """Return how many parameters the optimizers' states in a checkpoint have."""
    groups = [one.get("param_groups") for one in dicts_below(saved)]
    known = [group for one in groups if isinstance(one, list) for group in one]
    return sum(len(group["params"]) for group in known)


def parameters_lacking(trained, saved):
    """Return the names of the parameters whose values a checkpoint does not have.

    [] where it has none of them, but an average, say, or where they are shards.
    """
    if any(hasattr(one, "placements") for one in trained.values()):
        return []
    held = {digest(one) for one in tensors_in(without_states(saved))}
    lacks = [name for name, one in trained.items() if digest(one) not in held]
    return lacks if len(lacks) < len(trained) else []


def without_states(value):
    """Return dicts and lists without the states of optimizers in them."""
    if isinstance(value, dict):
        if "param_groups" in value:
            return {}
        return {name: without_states(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_states(one) for one in value]
    return value


def buffers_of(network):
    """Return {name: digest} of the buffers that a network's state_dict() has."""
    found = {}
    for prefix, module in network.named_modules(remove_duplicate=False):
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:
                found[bare(f"{prefix}.{name}".lstrip("."))] = digest(buffer)
    return found


def names_beside(network, saved):
    """Return the names in the dicts of a file that have all parameters of a network."""
    parameters = {bare(name) for name, _ in network.named_parameters()}
    found = set()
    for one in dicts_below(saved):
        names = {bare(str(name)) for name in one}
        found |= names if parameters <= names else set()
    return found


def buffers_lacking(module, begun, held):
    """Return the names of buffers that training has changed, and a file has not.

    `begun` is what `buffers_of` returned at first, `held` are the names in the file.
    """
    now = buffers_of(module)
    return [name for name in now if name not in held and now[name] != begun.get(name)]
