"""What a checkpoint lacks, of what a run goes on by."""

import linecache
import re

from onecurve.events import digest, tensors_in

GOES_ON = r"resum|torch\.load|load_state_dict"  # in a script
WHEN = "epoch|step|iter"  # in names of what a checkpoint counts
WRAPPERS = re.compile(r"^(module|_orig_mod)\.")  # before the names of parameters
HELD = {  # what a run goes on by, in the names that a checkpoint holds
    "optimizer": re.compile("optim|param_groups").search,
    "scheduler": re.compile("sched|last_epoch").search,
}


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


def states_lacking(saved, wanted):
    """Return which states, "optimizer" or "scheduler", a checkpoint does not name."""
    names = [str(name) for one in dicts_below(saved) for name in one]
    return [one for one in sorted(wanted) if not HELD[one](" ".join(names))]


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
    held = {digest(one) for one in tensors_in(saved)}
    lacks = [name for name, one in trained.items() if digest(one) not in held]
    return lacks if len(lacks) < len(trained) else []


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


def bare(name):
    """Return a name in a network without those of its wrappers."""
    return WRAPPERS.sub("", WRAPPERS.sub("", name))
