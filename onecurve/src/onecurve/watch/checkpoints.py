"""Find what a checkpoint lacks to resume a run."""

import linecache
import re

from onecurve.set_up.replace import replace
from onecurve.watch.events import bare, digest, tensors_in
from onecurve.watch.networks import buffers_of
from onecurve.wording import some

GOES_ON = r"resum|torch\.load|load_state_dict"  # in a script that resumes
REBUILDS = r"last_epoch\s*=(?!=)"  # a scheduler, from a saved epoch
WHEN = "epoch|step|iter"  # in names of a checkpoint's counters
HELD = {  # state needed to resume, by names in a checkpoint
    "optimizer": re.compile("optim|param_groups").search,
    "scheduler": re.compile("sched|last_epoch").search,
}


class Checkpoints:
    """Writes the event `saved`: what a file lacks, and the states that it holds."""

    def __init__(self, script):
        self.script = script
        self.log = script.log
        self.begun = {}  # id of a network -> digests of its buffers before training

    def install(self):
        replace("torch:save", self.save)
        replace("torch.distributed.checkpoint:save", self.save_parts)

    def first_pass(self, network):
        self.begun[id(network)] = buffers_of(network)

    def save(self, original, obj, *args, **options):
        self.write_lacks(obj)
        return original(obj, *args, **options)

    def save_parts(self, original, state_dict, *args, **options):
        self.write_lacks(resolved(state_dict))
        return original(state_dict, *args, **options)

    def write_lacks(self, obj):
        frame = self.log.frame()
        path = frame.f_code.co_filename if frame else ""
        lacks = []
        if isinstance(obj, dict):
            if says_when(obj) and mentions(GOES_ON, path):
                rebuilt = {"scheduler"} if mentions(REBUILDS, path) else set()
                lacks += states_lacking(obj, self.script.has_state - rebuilt)
            learned = self.script.learned
            if parameters_with_state(obj) >= len(learned):
                lacks += named("parameter", parameters_lacking(learned, obj))
        lacks += named("buffer", self.buffers_lacking(obj))
        holds = sorted(HELD.keys() - states_lacking(obj, HELD))
        if lacks or holds:
            self.log.write("saved", line=self.log.line(), lacks=lacks, holds=holds)

    def buffers_lacking(self, obj):
        """Return the names of buffers that an object with a network lacks."""
        lacks = []
        for network in self.script.networks:
            held = names_beside(network, obj)
            if held:
                lacks += buffers_lacking(network, self.begun[id(network)], held)
        return lacks


def named(kind, names):
    """Return a list with a summary of names, or [] without names."""
    return [f"{kind} {some(names)}"] if names else []


def says_when(saved):
    """Return whether a checkpoint contains weights and a step or epoch."""
    counts = any(type(saved[one]) is int and re.search(WHEN, str(one)) for one in saved)
    return counts and any(tensors_in(value) for value in saved.values())


def resolved(state_dict):
    """Return a distributed checkpoint's state dicts, or its only one."""
    found = {}
    for name, one in state_dict.items():
        found[name] = one.state_dict() if hasattr(one, "state_dict") else one
    only = next(iter(found.values()), None)
    return only if len(found) == 1 and isinstance(only, dict) else found


def mentions(pattern, path):
    """Return whether a script's source matches a pattern."""
    return re.search(pattern, "".join(linecache.getlines(path)))


def dicts_below(value):
    """Yield all dicts in nested dicts and lists, including the value itself."""
    if isinstance(value, dict):
        yield value
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for one in value:
        yield from dicts_below(one)


def states_lacking(saved, wanted):
    """Return which states, "optimizer" or "scheduler", a checkpoint lacks."""
    names = " ".join(str(key) for each in dicts_below(saved) for key in each)
    return [one for one in sorted(wanted) if not HELD[one](names)]


def parameters_with_state(saved):
    """Return the number of parameters in a checkpoint's optimizer states."""
    groups = [one.get("param_groups") for one in dicts_below(saved)]
    known = [group for one in groups if isinstance(one, list) for group in one]
    return sum(len(group["params"]) for group in known)


def parameters_lacking(trained, saved):
    """Return the names of missing parameters; [] if all are missing, or sharded."""
    if any(hasattr(one, "placements") for one in trained.values()):
        return []
    held = {digest(one) for one in tensors_in(without_states(saved))}
    lacks = [name for name, one in trained.items() if digest(one) not in held]
    return lacks if len(lacks) < len(trained) else []  # it may hold averages


def without_states(value):
    """Return nested dicts and lists without optimizer states."""
    if isinstance(value, dict):
        if "param_groups" in value:
            return {}
        return {name: without_states(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_states(one) for one in value]
    return value


def names_beside(network, saved):
    """Return the names in a file's dicts that contain all parameters of a network."""
    parameters = {bare(name) for name, _ in network.named_parameters()}
    found = set()
    for one in dicts_below(saved):
        names = {bare(str(name)) for name in one}
        found |= names if parameters <= names else set()
    return found


def buffers_lacking(module, begun, held):
    """Return names of buffers that changed since `begun` but are not in `held`."""
    now = buffers_of(module)
    return [name for name in now if name not in held and now[name] != begun.get(name)]
