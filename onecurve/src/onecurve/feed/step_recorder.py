"""Keep what several ranks compute in each step: batches, gradients and weights."""

import math

import torch
from torch.utils.data import default_collate

from onecurve.feed.draws import Draws
from onecurve.feed.stored import BEGIN, batch_name, cut_name, in_name, thinned
from onecurve.set_up.float64 import as_read, in_double
from onecurve.set_up.replace import replace
from onecurve.watch.events import digest, is_zero
from onecurve.watch.hooks import Hooks
from onecurve.watch.identities import own_number
from onecurve.watch.losses import Losses
from onecurve.watch.own_gradients import OwnGradients
from onecurve.watch.samples import OWN, changed, generator_states, generators

STEPS = 12  # to compare
FURTHER = 64  # if a small model has not evaluated yet, or has no loader
DRAWN = 16  # leading random numbers that tell draws apart
PASSES = 128  # training passes in these, estimated from the first step


class RecordedSteps(Hooks):
    """Keeps batches, and gradients and weights before each step, in `folder`."""

    def __init__(self, log, end, folder, sources):
        super().__init__(log, end)
        self.folder = folder
        self.sources = sources  # the folders of several ranks
        self.taken = 0  # batches since the latest step
        self.lost = False  # whether unrecorded random numbers were drawn for them
        self.unclipped = {}  # id of a parameter -> its gradient before clipping
        self.own = OwnGradients()
        self.known = set()  # numbers of the parameters whose gradients DDP exchanges
        self.wrapped_at = None  # line of the latest wrapper
        self.since = {}  # lines since the latest step, such as "clipped"
        self.losses = []  # of the backward passes since the latest step
        self.after_pass = []  # gradients before and after each, if kept
        self.forwards = 0  # training passes since then
        self.parts = Losses()  # sums and means that the loss consists of
        self.stepped = []  # the latest step's parameters
        self.first_forwards = 0  # training passes in the first step
        self.shards_left = False  # whether all shards have leftover gradients
        self.short = False  # whether DDP exchanges gradients in a shorter dtype
        self.draws = Draws(log, sources)
        self.samples = None  # of the latest batch, if the script collates them

    def install(self):
        super().install()
        ddp = "torch.nn.parallel:DistributedDataParallel"
        replace(f"{ddp}.register_comm_hook", self.comm_hook)
        replace("torch.autograd:grad", self.own.grad)
        self.parts.install()

    def comm_hook(self, original, *args, **options):
        """Wrap DDP.register_comm_hook, because the hook may round gradients."""
        self.short = True
        return original(*args, **options)

    def made(self, original, one, *args, **options):
        """Wrap the constructor of an optimizer or a scheduler."""
        super().made(original, one, *args, **options)
        if isinstance(one, torch.optim.Optimizer) and not self.apart.is_now():
            self.optimizer_made()

    def optimizer_made(self):
        """Keep the generators' states, because training begins about here."""
        self.keep(BEGIN, generators())

    def backward(self, original, loss, *args, **options):
        outermost = not self.in_backward
        if outermost:
            self.since["early"] = self.since.get("clipped")
            self.since["backward"] = self.line()
        if outermost and not self.losses:
            self.passes_begin()
        super().backward(original, loss, *args, **options)
        if outermost:
            self.losses.append(loss.detach().item() if loss.numel() == 1 else math.nan)
            self.pass_ends()

    def passes_begin(self):
        """Check for leftover gradients before a step's first backward pass."""
        left = [one.grad for one in self.stepped if hasattr(one, "placements")]
        full = [grad for grad in left if grad is not None and not is_zero(grad)]
        self.shards_left = bool(left) and len(full) == len(left)

    def pass_ends(self):
        """Run after a backward pass."""

    def ddp_init(self, original, ddp, *args, **options):
        """Wrap DDP's constructor and remember the parameters that it will exchange."""
        super().ddp_init(original, ddp, *args, **options)
        self.wrapped_at = self.line()
        for one in ddp.parameters():
            if one.requires_grad:
                self.known.add(own_number(one))

    def wrapper_forward(self, original, wrapper, *args, **kwargs):
        if torch.is_grad_enabled():
            synced = getattr(wrapper, "require_backward_grad_sync", True)
            self.since["unsynced"] = None if synced else self.log.giver(wrapper)
        return super().wrapper_forward(original, wrapper, *args, **kwargs)

    def network_call(self, original, network, *args, **kwargs):
        """Wrap a call of the network and start adding up its gradients."""
        self.own.watch(network.parameters())
        if torch.is_grad_enabled() and any(network is one for one in self.wrapped):
            self.since["past"] = self.log.giver(network)
        result = super().network_call(original, network, *args, **kwargs)
        if torch.is_grad_enabled() and not self.in_backward:
            self.forwards += 1
            self.forward_ends(f"forward{self.steps}-{self.forwards}.pt")
        return result

    def forward_ends(self, name):
        """Keep generators after a training pass: a batch may be drawn next."""
        self.keep(name, generators())

    def write_call(self, name, given):
        """Remember where the script exchanges gradients itself."""
        super().write_call(name, given)
        tensor = given.get("tensor")
        if name == "all_reduce" and self.own.is_of_gradients(tensor):
            self.since["reduced"] = self.line()

    def drawn(self):
        """Note that the script drew unrecorded random numbers for a step."""
        self.lost |= self.taken > 0

    def drawn_inside(self):
        """Note that a network drew unrecorded random numbers."""
        self.lost = True

    def draw(self, function, *args, **options):
        if torch.is_grad_enabled():
            return self.draw_for_training(function, *args, **options)
        self.log.write("drawn_without")
        if self.taken and self.is_reading_to_train():
            self.drawn()  # a network's output may be trained on, as in a GAN
        return function(*args, **options)

    def draw_for_training(self, function, *args, **options):
        """Draw random numbers for training, and keep them."""
        now = generator_states()
        if changed(self.states or now, now):
            self.drawn()  # something else drew
        drawn = function(*args, **options)
        name = self.draws.next_name(self.steps)
        if name and type(drawn) is torch.Tensor:
            self.keep(name, drawn.detach())
            count = len(drawn) if drawn.dim() else 1
            begin = drawn.flatten()[:DRAWN]
            facts = {"digest": digest(drawn), "begin": digest(begin), "count": count}
            self.log.write("drew", line=self.line(), **facts)
        else:
            self.drawn()
        self.states = generator_states()
        return drawn

    def drawing(self, generator):
        """Register one of the script's generators before it is drawn from."""
        if any(generator is one for one in OWN.values()):
            return
        line = self.line()
        number = sum(name.startswith(f"{line}-") for name in OWN)
        name = f"{line}-{number}"
        OWN[name] = generator
        self.first_drawing(f"own-{in_name(name)}.pt", generator)

    def first_drawing(self, name, generator):
        """Keep the state of the script's generator before its first draw."""
        self.keep(name, generator.get_state())

    def loader_iter(self, original, loader):
        """Wrap the start of an epoch, without keeping the loader's own draws."""
        with as_read():
            return super().loader_iter(original, loader)

    def fetch(self, original, fetcher, indices):
        """Wrap reading samples; keep those that the script's collate_fn gets."""
        collate = fetcher.collate_fn

        def keep(samples):
            self.samples = samples
            return collate(samples)

        if collate is not default_collate:
            fetcher.collate_fn = keep
        try:
            return super().fetch(original, fetcher, indices)
        finally:
            fetcher.collate_fn = collate

    def next_batch(self, original, reading):
        """Wrap reading a batch, and keep it."""
        with as_read():
            batch = in_double(super().next_batch(original, reading))
        sizes = reading.share["sizes"][reading.batches - 1 :]
        size = sizes[0] if sizes else None
        self.keep(batch_name(reading), (batch, size, generators(), self.samples))
        self.samples = None
        return batch

    def enough(self, reading):
        """Return whether enough of an epoch was seen; mark a cut evaluation."""
        is_enough = super().enough(reading)
        if is_enough and not reading.grad:
            self.keep(cut_name(reading), None)
        return is_enough

    def batch_came(self, reading):
        super().batch_came(reading)
        self.taken += 1

    def keep(self, name, value):
        try:
            torch.save(value, self.folder / name)
        except Exception as error:  # noqa: BLE001, a batch may raise anything
            self.cannot_tell(f"batches cannot be saved: {error}")

    def clip(self, original, parameters, *args, **options):
        """Wrap clipping; keep the gradients before it, because it hides a factor."""
        if isinstance(parameters, torch.Tensor):
            parameters = [parameters]
        parameters = list(parameters)
        self.since["clipped"] = self.line()
        for one in parameters:
            if one.grad is not None:
                self.unclipped[id(one)] = thinned(one.grad)
        return super().clip(original, parameters, *args, **options)

    def step_begins(self, optimizer):
        """Keep gradients, weights and other facts before a step."""
        super().step_begins(optimizer)
        given = {}
        unclipped = {}
        weights = {}
        parameters = self.parameters(optimizer)
        for name, parameter in parameters.items():
            weights[name] = thinned(parameter)
            if parameter.grad is not None:
                given[name] = thinned(parameter.grad)
            if id(parameter) in self.unclipped:
                unclipped[name] = self.unclipped[id(parameter)]
        facts = {
            "given": given,
            "unclipped": unclipped,
            "own": self.own_sums(),
            "wrapped": {self.name_of(one, str(one)) for one in self.known},
            "since": {**self.since, "wrapped": self.wrapped_at},
            "losses": self.losses,
            "sums": self.parts.sums,
            "means": self.parts.means,
            "short": self.short,
            "rates": [group["lr"] for group in optimizer.param_groups],
            "kept": self.own.step_begins(parameters.values()) or self.shards_left,
            "after_pass": self.after_pass,
            "weights": weights,
            "taken": self.taken,
            "samples": sorted(self.trained_on),
            "in_turn": self.draws.in_turn,
            "lost": self.lost or bool(changed(self.states or {}, generator_states())),
            "line": self.since.get("backward") or self.line(),
        }
        self.keep(f"gradients{self.steps}.pt", facts)
        self.stepped = list(parameters.values())

    def own_sums(self):
        """Return {name of a parameter: gradient that this rank computed itself}."""
        found = {}
        for one, total in self.own.sums.items():
            found[self.name_of(one, str(one))] = thinned(total)
        return found

    def step_ends(self, optimizer):
        """Reset what belongs to one step; end after enough steps."""
        super().step_ends(optimizer)
        self.taken = 0
        self.lost = False
        self.unclipped = {}
        self.since = {}
        self.losses = []
        self.first_forwards = self.first_forwards or self.forwards
        self.forwards = 0
        self.parts.begin()
        self.draws.step_ends()
        self.keep(f"generators{self.steps}.pt", generators())
        if self.steps >= STEPS and not self.goes_further():
            self.end()

    def goes_further(self):
        """Return whether to go on until an evaluation's numbers can be compared.

        Without a loader, that may be the one at the end. With one, the first evaluation
        is enough, since epochs are shortened.
        """
        few = self.steps < FURTHER and self.steps * self.first_forwards < PASSES
        has_evaluated = self.readings and self.end.has_evaluated(self.steps)
        return few and self.is_small() and not has_evaluated
