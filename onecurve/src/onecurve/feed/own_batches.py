"""Give a rank its own batches and random numbers, and keep them for another run."""

from collections import Counter

import torch
from torch.utils._pytree import tree_map_only
from torch.utils.data import default_collate

from onecurve.feed import stored
from onecurve.feed.draws import Draws
from onecurve.set_up.float64 import as_read, in_double
from onecurve.watch.events import digest
from onecurve.watch.loaders import Supply
from onecurve.watch.samples import OWN, changed, generator_states, generators

SAVE = torch.save  # the original, which listeners don't hear


class OwnBatches(Supply):
    """A supply that keeps batches, random numbers and generators in `folder`."""

    def __init__(self, script, folder, sources):
        self.script = script
        self.log = script.log
        self.folder = folder
        self.sources = sources  # the folders of several ranks
        self.taken = 0  # batches since the latest step
        self.lost = False  # whether unrecorded random numbers were drawn for them
        self.passes = 0  # with gradients, since the latest step
        self.draws = Draws(self.log, sources)
        self.own = Counter()  # line -> the script's own generators first used there
        self.samples = None  # of the latest batch, if the script collates them

    def keep(self, name, value):
        try:
            with torch._C.DisableTorchFunction():
                SAVE(value, self.folder / name)
        except Exception as error:  # noqa: BLE001, a batch may raise anything
            self.script.cannot_tell(f"batches cannot be saved: {error}")

    def start_epoch(self, original, loader):
        """Return a loader's iterator, without keeping the loader's own draws."""
        with as_read():
            return original(loader)

    def fetch(self, original, fetcher, indices):
        """Return a batch; keep the samples that the script's collate_fn gets."""
        collate = fetcher.collate_fn

        def keep(samples):
            self.samples = samples
            return collate(samples)

        if collate is not default_collate:
            fetcher.collate_fn = keep
        try:
            return original(fetcher, indices)
        finally:
            fetcher.collate_fn = collate

    def next_batch(self, read, reading):
        with as_read():
            batch = read(reading)
        sizes = reading.share["sizes"][reading.batches :]
        size = sizes[0] if sizes else None
        kept = batch, size, generators(), self.samples
        kept = tree_map_only(torch.Tensor, torch.clone, kept)  # without larger storage
        self.keep(stored.batch_name(reading), kept)
        self.samples = None
        return in_double(batch)

    def batch_came(self, reading):
        self.taken += 1

    def cut(self, reading):
        if not reading.grad:
            self.keep(stored.cut_name(reading), None)

    def optimizer_made(self, optimizer):
        """Keep the generators' states, because training begins about here."""
        self.keep(stored.BEGIN, generators())

    def step_begins(self, optimizer):
        """Before a step: keep what a replay copies."""
        steps = self.script.steps
        parameters = self.script.parameters(optimizer)
        if not steps:
            weights = {name: stored.whole(one) for name, one in parameters.items()}
            self.keep(stored.WEIGHTS, weights)
        if sum(one.numel() for one in parameters.values()) <= stored.REPLAYED:
            held = [name for name, one in parameters.items() if one.grad is not None]
            gradients = {name: stored.whole(parameters[name].grad) for name in held}
            self.keep(stored.WHOLE.format(steps), gradients)

    def module_ends(self, module):
        """After a training pass: a batch may be drawn next."""
        if torch.is_grad_enabled() and not self.script.in_backward:
            self.passes += 1
            self.pass_is_over(f"forward{self.script.steps}-{self.passes}.pt")

    def pass_is_over(self, name):
        self.keep(name, generators())

    def draw(self, function, *args, **options):
        """Draw random numbers, for training or not."""
        if torch.is_grad_enabled():
            return self.draw_for_training(function, *args, **options)
        self.log.write("drawn_without")
        reading = list(self.script.open.values())[-1:]
        if self.taken and reading and reading[0].grad:
            self.drew()  # a network's output may be trained on, as in a GAN
        return function(*args, **options)

    def draw_for_training(self, function, *args, **options):
        """Draw random numbers for training, and keep them."""
        now = generator_states()
        if changed(self.script.states or now, now):
            self.drew()  # something else drew
        drawn = function(*args, **options)
        name = self.draws.next_name(self.script.steps)
        if name and type(drawn) is torch.Tensor:
            self.keep(name, drawn.detach())
            count = len(drawn) if drawn.dim() else 1
            facts = {"digest": digest(drawn), "count": count}
            facts["constant"] = bool((drawn == drawn.flatten()[:1]).all())
            self.log.write("drew", line=self.log.line(), **facts)
        else:
            self.drew()
        self.script.states = generator_states()
        return drawn

    def drawing(self, generator):
        """Register one of the script's generators before it is drawn from."""
        if any(generator is one for one in [torch.default_generator, *OWN.values()]):
            return
        line = self.log.line()
        name = f"{line}-{self.own[line]}"
        self.own[line] += 1
        OWN[name] = generator
        self.first_drawing(f"own-{stored.in_name(name)}.pt", generator)

    def first_drawing(self, name, generator):
        """Keep the state of the script's generator before its first draw."""
        self.keep(name, generator.get_state())

    def drew(self):
        """Note that the script drew unrecorded random numbers for a step."""
        self.lost |= self.taken > 0

    def drew_inside(self):
        """Note that a network drew unrecorded random numbers."""
        self.lost = True

    def lost_draws(self):
        """Return whether random numbers of the current step are not known."""
        return self.lost or bool(changed(self.script.states or {}, generator_states()))

    def step_ends(self, optimizer):
        """Reset what belongs to one step, and keep the generators' states."""
        self.taken = 0
        self.lost = False
        self.passes = 0
        self.draws.step_ends()
        self.keep(f"generators{self.script.steps}.pt", generators())
