"""Find the lines that change weights outside of optimizer steps."""

import torch

from onecurve.set_up.replace import replace
from onecurve.watch.events import at, bare
from onecurve.watch.identities import own_number

DATA = torch._C.TensorBase.data  # the original attribute of parameters


class Writes:
    """Remembers which of the script's lines change which of its networks' weights."""

    def __init__(self, log):
        self.log = log
        self.watched = {}  # number of a parameter -> parameter
        self.tensors = []  # pairs: such a number, and the parameter or its `data`
        self.versions = []  # of these tensors after the latest line
        self.lines = {}  # line -> numbers of the parameters it changed
        self.stepping = False  # whether an optimizer's step changes them

    def install(self):
        replace("torch.nn:Parameter.data", property(self.data, self.set_data))
        self.log.line_over = self.note

    def data(self, parameter):
        """Return a parameter's data, which counts its changes by itself."""
        data = DATA.__get__(parameter)
        number = own_number(parameter)
        if number in self.watched and not self.stepping:
            self.tensors.append((number, data))
            self.versions.append(data._version)
        return data

    def set_data(self, parameter, data):
        DATA.__set__(parameter, data)
        number = own_number(parameter)
        if number in self.watched and not self.stepping:
            self.lines.setdefault(self.log.line(), set()).add(number)

    def watch(self, networks):
        """Watch these networks' parameters, after an optimizer's step as well."""
        parts = [one for network in networks for one in network.parameters()]
        self.watched = {own_number(one): one for one in parts}
        self.tensors = list(self.watched.items())
        self.versions = [one._version for one in self.watched.values()]

    def note(self):
        """Note which weights the latest line changed."""
        versions = [one._version for _, one in self.tensors]
        if versions != self.versions and not self.stepping:
            changes = zip(self.tensors, versions, self.versions, strict=True)
            numbers = {number for (number, _), now, old in changes if now != old}
            self.lines.setdefault(at(*self.log.now), set()).update(numbers)
            self.versions = versions

    def of(self, network):
        """Return {line: names} of the weights that lines changed, each only once."""
        named = network.named_parameters()
        names = {own_number(one): bare(name) for name, one in named}
        found = {}
        for line, numbers in self.lines.items():
            if numbers & names.keys():
                found[line] = [names[one] for one in numbers & names.keys()]
                numbers -= names.keys()
        return found
