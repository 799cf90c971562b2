"""What is known about a running script, and who listens to it.

A listener is an object that writes events to the log. Wrapped functions of PyTorch tell
all listeners, in the order in which they were added, what happens. A listener has a
method for each of these that it needs:

    module_begins(module, args, kwargs)  an outermost module is called; module_ends(it)
    first_pass(network)                  its first pass with gradients
    pass_begins(network)                 it has parameters; pass_ends(network, given)
    wrapped(ddp)                         DDP's constructor returns
    wrapper_begins(ddp)                  DDP's forward is called
    backward_begins(loss)                backward_ends(loss)
    collective_begins(name, given)       arguments; collective_ends(.., .., result)
    batch_came(reading)                  a loader returned a batch
    drew(), drew_inside()                random numbers were drawn before or in a pass
    optimizer_made(optimizer)
    clips(parameters)
    before_step(optimizer)               also of a step that another optimizer takes
    step_begins(optimizer)               only of the outermost one
    step_returns(optimizer)
    step_ends(optimizer)                 after its event was written
    after_step(optimizer, args, kwargs)
    script_ends()                        the script reached its own end
    finish()                             nothing more will be told
"""

from onecurve.watch.identities import own_number
from onecurve.watch.one_rank_blocks import OneRankBlocks

SMALL = 300_000  # parameters of a small model


class Script:
    """The state of a rank's script, kept up to date by the listeners.

    `end` is called without arguments when enough has been seen. If None, the script
    runs to its own end and nothing is shortened.
    """

    def __init__(self, log, end=None):
        self.log = log
        self.end = end
        self.listeners = []
        self.one_rank = OneRankBlocks(log)
        self.names = {}  # own_number of a parameter -> its name in the network
        self.owners = {}  # name of a trained parameter -> its own_number
        self.networks = []  # called for training
        self.wrapped_modules = []  # that DDP wraps
        self.ignored_at = None  # line that makes FSDP ignore parameters
        self.optimized = set()  # own_numbers of the parameters in optimizers
        self.optimizer_made = None  # line of the latest constructor call
        self.stale = 0  # tensors in an optimizer, in no network and without a gradient
        self.learned = {}  # name -> parameter that an optimizer has changed
        self.steps = 0  # of optimizers
        self.backwards = 0
        self.passes = 0  # of networks
        self.in_backward = False
        self.targets = []  # digests of those of losses since the latest backward pass
        self.trained_on = []  # for each pass since the latest step: samples' digests
        self.batch = []  # loader, epoch and number of the latest batch
        self.open = {}  # loader's key -> the epoch being read
        self.states = None  # of the generators after a batch, pass or step
        self.step_facts = {}  # for the next event "step"

    def add(self, *listeners):
        """Add listeners, and install those that wrap functions."""
        for one in listeners:
            self.listeners.append(one)
            if hasattr(one, "install"):
                one.install()

    def tell(self, what, *facts):
        """Call the method of this name of all listeners that have one."""
        for one in self.listeners:
            if hasattr(one, what):
                getattr(one, what)(*facts)

    def finish(self):
        """Tell that it is over, then end the run if it is to end."""
        self.tell("finish")
        if self.end:
            self.end()

    def ends(self):
        """Tell that the script has reached its own end."""
        self.tell("script_ends")
        self.end = None  # already reached
        self.finish()

    def cannot_tell(self, why):
        """Record why the run can't be judged, and end it."""
        self.log.write("cannot_tell", why=why)
        if self.end:
            self.finish()

    def is_small(self):
        return sum(one.numel() for one in self.learned.values()) <= SMALL

    def parameters(self, optimizer):
        """Return an optimizer's parameters, {name in the network: parameter}."""
        found = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                found[self.name_of(own_number(parameter), str(len(found)))] = parameter
        return found

    def name_of(self, key, otherwise):
        """Return a unique name for parameter `key`, or `otherwise` if unknown."""
        name = self.names.get(key, otherwise)
        number = 2
        while self.owners.setdefault(name, key) != key:  # another network has it
            name = f"{self.names.get(key, otherwise)}, number {number}"
            number += 1
        return name
