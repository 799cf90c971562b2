"""Find the values of earlier steps, such as running means, that a loss depends on."""

import torch
from torch._C._functorch import is_functorch_wrapped_tensor as in_transform
from torch.multiprocessing.reductions import StorageWeakRef

from onecurve.feed.stored import thinned
from onecurve.watch.events import at, tensors_in

PLAIN = torch.Tensor, torch.nn.Parameter  # not a DTensor


class Memory:
    """What is known about a tensor's memory, which its views share."""

    def __init__(self, storage):
        self.storage = StorageWeakRef(storage)  # no other one gets its address
        self.trained = False  # whether it is a weight
        self.change = None  # facts about the latest in training, until it is read
        self.reads = set()  # keys of this step's states that it depends on


class States:
    """Follows tensors from one function of PyTorch to the next.

    A state was changed in training, without a gradient, and is read in a later step.
    """

    def __init__(self, script):
        self.script = script
        self.log = script.log
        self.memories = {}  # address -> Memory
        self.step = None  # number of the current one
        self.ended = True  # whether its optimizer's step is over
        self.late = False  # whether its backward pass began, and no other pass since
        self.read = {}  # (line of change, number) -> a state that this step reads
        self.in_loss = set()  # keys of those that its losses depend on

    def begins(self, *facts):
        """Begin a step with its first batch or pass, or go on with it."""
        if torch.is_grad_enabled():
            self.late = False
            if self.ended:
                self.step = self.script.steps
                self.ended = False

    batch_came = module_begins = begins

    def backward_begins(self, loss):
        self.late = True
        for _, memory in self.memories_of(loss):
            self.in_loss |= memory.reads

    def kept(self):
        """Return this step's states that its losses depend on."""
        return {key: self.read[key] for key in self.read if key in self.in_loss}

    def step_ends(self, optimizer):
        self.ended = True
        self.read = {}
        self.in_loss = set()
        kept = self.memories.items()
        self.memories = {key: one for key, one in kept if not one.storage.expired()}
        for one in self.memories.values():
            one.reads = set()

    def memories_of(self, value):
        """Return pairs of a tensor in a value and its Memory."""
        found = []
        for tensor in tensors_in(value):
            is_plain = type(tensor) in PLAIN and tensor.layout is torch.strided
            if is_plain and not (tensor.is_inference() or in_transform(tensor)):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.memories:
                    self.memories[storage._cdata] = Memory(storage)
                found.append((tensor, self.memories[storage._cdata]))
        return found

    def collective_ends(self, name, given, result):
        """Let each tensor of a collective depend on what any of them does."""
        found = [memory for _, memory in self.memories_of([given, result])]
        reads = set().union(*(one.reads for one in found))
        for one in found:
            one.reads |= reads

    def follow(self, function, args, kwargs):
        """Call a function; note what its results depend on."""
        given = self.memories_of([args, kwargs])
        reads = set()
        for tensor, memory in given:
            self.note_read(tensor, memory)
            reads |= memory.reads
        versions = [tensor._version for tensor, _ in given]
        result = function(*args, **kwargs)
        for (tensor, memory), before in zip(given, versions, strict=True):
            if tensor._version != before:
                memory.reads |= reads
                self.note_change(memory)
        had_gradient = {memory: tensor.requires_grad for tensor, memory in given}
        for tensor, memory in self.memories_of(result):
            memory.reads |= reads
            if had_gradient.get(memory, True) and not tensor.requires_grad:
                self.note_change(memory)
        return result

    def note_read(self, tensor, memory):
        """Keep a state that is read for the first time since its change."""
        memory.trained |= tensor.requires_grad and tensor.is_leaf
        change = memory.change
        if change and change["step"] < self.step:
            memory.change = None
            if not (memory.trained or tensor.requires_grad):
                before = [line for line, _ in self.read if line == change["line"]]
                key = change["line"], len(before)
                self.read[key] = {**change, "value": thinned(tensor)}
                memory.reads.add(key)

    def note_change(self, memory):
        if self.step is not None and self.log.now[1]:  # lines are followed
            facts = {"line": at(*self.log.now), "time": self.log.clock()}
            memory.change = facts | {"step": self.step, "late": self.late}
