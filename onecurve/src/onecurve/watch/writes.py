"""Find the lines that change weights outside of optimizer steps."""

import torch

from onecurve.set_up.replace import replace
from onecurve.watch.events import at, bare
from onecurve.watch.identities import own_number

DATA = torch._C.TensorBase.data  # the original attribute of parameters


class Writes:
    """Remembers which of the script's lines change which of its networks' weights."""

    def __init__(self, script):
        self.script = script
        self.log = script.log
        self.tensors = []  # pairs: a parameter's number, and it or its `data`
        self.versions = []  # of these tensors after the latest line
        self.lines = {}  # line -> numbers of the parameters it changed
        self.stepping = False  # whether an optimizer's step changes them

    def install(self):
        replace("torch.nn:Parameter.data", property(self.data, self.set_data))
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
        self.lines.setdefault(self.log.line(), set()).add(own_number(parameter))

    def before_step(self, optimizer):
        self.note()
        self.stepping = True

    def after_step(self, optimizer, args, kwargs):
        self.stepping = False
        self.watch()

    def watch(self, *facts):
        """Watch the weights of the script's networks from now on."""
        networks = self.script.networks + self.script.wrapped_modules
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
            self.lines.setdefault(at(*self.log.now), set()).update(numbers)
            self.versions = versions

    def taken(self, network, weights):
        """Return {line: names} of those weights that lines changed, each only once."""
        self.note()
        self.watch()
        named = {}
        for name, parameter in network.named_parameters():
            number = own_number(parameter)
            named[self.script.name_of(number, bare(name))] = number
        found = {}
        for line, numbers in self.lines.items():
            names = [name for name in weights if named[name] in numbers]
            numbers.difference_update(named[name] for name in names)
            found |= {line: names} if names else {}
        return found
