"""Find the lines that change weights outside of optimizer steps."""

import torch

from onecurve.set_up.replace import replace
from onecurve.watch.events import at, bare
from onecurve.watch.identities import own_number
from onecurve.watch.origins import COPIES

DATA = torch._C.TensorBase.data  # the original attribute of parameters


class Writes:
    """Remembers which of the script's lines change which of its networks' weights."""

    def __init__(self, script):
        self.script = script
        self.log = script.log
        self.tensors = []  # pairs: a parameter's number, and it or its `data`
        self.versions = []  # of these tensors after the latest line
        self.lines = {}  # line -> numbers of the parameters it changed
        self.loaded = {}  # optimizer's number -> line that loaded its state
        self.stepping = False  # whether an optimizer's step changes them

    def install(self):
        replace("torch.nn:Parameter.data", property(self.data, self.set_data))
        replace("torch.optim:Optimizer.load_state_dict", self.load)
        self.log.line_over = self.note

    def data(self, parameter):
        """Return a parameter's data, which counts its changes by itself."""
        data = DATA.__get__(parameter)
        if not self.stepping:
            self.tensors.append((own_number(parameter), data))
            self.versions.append(data._version)
        return data

    def set_data(self, parameter, data):
        DATA.__set__(parameter, data)
        self.add(self.log.line(), [own_number(parameter)])

    def load(self, original, optimizer, *args, **options):
        self.loaded[own_number(optimizer)] = self.log.line()
        return original(optimizer, *args, **options)

    def before_step(self, optimizer):
        self.note()
        self.stepping = True

    def after_step(self, optimizer, args, kwargs):
        self.stepping = False
        self.watch()
        line = self.loaded.pop(own_number(optimizer), None)
        if line:
            self.add(line, map(own_number, self.script.parameters(optimizer).values()))

    def watch(self, *facts):
        """Watch the weights of the script's networks and copies from now on."""
        networks = [*self.script.networks, *self.script.wrapped_modules, *COPIES]
        parts = {own_number(p): p for one in networks for p in one.parameters()}
        self.tensors = list(parts.items())
        self.versions = [one._version for one in parts.values()]

    wrapped = watch

    def note(self):
        """Note which weights the latest line changed."""
        versions = [one._version for _, one in self.tensors]
        if versions != self.versions and not self.stepping:
            changes = zip(self.tensors, versions, self.versions, strict=True)
            numbers = {number for (number, _), now, old in changes if now != old}
            self.versions = versions
            if self.log.now[1]:  # lines are followed
                self.add(at(*self.log.now), numbers)

    def add(self, line, numbers):
        self.lines.setdefault(line, set()).update(numbers)

    def found(self, network, name_of=lambda number, name: name):
        """Return {line: names} of a network's weights that lines changed."""
        self.note()
        named = {own_number(p): bare(name) for name, p in network.named_parameters()}
        found = {}
        for line, numbers in self.lines.items():
            names = [name_of(one, named[one]) for one in named if one in numbers]
            found |= {line: names} if names else {}
        return found

    def taken(self, network, name_of):
        """Return what `found` does, each change of trained weights only once."""
        found = self.found(network, name_of)
        self.watch()
        known = {own_number(p) for p in network.parameters() if p.requires_grad}
        for numbers in self.lines.values():
            numbers -= known
        return found
