"""Record the events of a run that the rules read."""

import contextlib
import linecache
import re
import sys
from collections import Counter

import torch

from onecurve.set_up.replace import replace
from onecurve.watch.checkpoints import Checkpoints
from onecurve.watch.events import bare, digest, has_gaps, is_finite, tensors_in
from onecurve.watch.fsdp import FSDP
from onecurve.watch.identities import own_number
from onecurve.watch.networks import (
    has_own_statistics,
    is_at_work,
    is_replicated,
    state_of,
    types_of,
    weights_of,
)
from onecurve.watch.optimizers import Optimizers
from onecurve.watch.origins import origin
from onecurve.watch.samples import changed, generator_states, rows
from onecurve.wording import some

SHUFFLES = re.compile(r"shuffl|randperm|permut|sample\(|choice|argsort")
CUT = "nor on one rank, so gradients of 1 and more ranks agree"


class Hooks(Optimizers):
    """Records what a rank does; ends it after some epochs or steps."""

    def __init__(self, log, end=None):
        super().__init__(log, end)
        self.wrapped = []  # modules that DDP wraps
        self.types = {}  # id of a wrapper -> dtypes of its parameters
        self.networks = []  # called for training
        self.sharded = FSDP(log, self.networks)
        self.saved = Checkpoints(log, self.networks, self.learned, self.has_state)

    def install(self):
        super().install()
        self.sharded.install()
        self.saved.install()
        replace("torch.nn:Module.load_state_dict", self.load)
        replace("torch.nn:Module.train", self.set_mode)
        replace("torch.distributed.algorithms.join:Join.__enter__", self.join)
        parallel = "torch.distributed.tensor.parallel"
        replace(f"{parallel}:parallelize_module", self.split_layers)
        for name in "send", "recv", "isend", "irecv":
            replace(f"torch.distributed:{name}", self.split_model)
        for name in "__new__", "__init__":
            replace(f"torch.distributed:P2POp.{name}", self.message)
        for name in "spawn", "start_processes":
            replace(f"torch.multiprocessing:{name}", self.spawn)

    def load(self, original, module, state_dict, *args, **options):
        """Wrap load_state_dict: with strict=False, the file may not fit at all."""
        result = original(module, state_dict, *args, **options)
        names = {name for name, _ in module.named_parameters()}
        if names and names <= set(result.missing_keys):
            found = min(state_dict, default="none")
            self.log.found("loaded", f"first name in the file: {found}")
        return result

    def set_mode(self, original, module, mode=True):
        """Wrap train() and eval(), which also call the submodules'."""
        if any(module is getattr(one, "module", one) for one in self.networks):
            self.log.write("mode", line=self.line())
        return original(module, mode)

    def join(self, original, *args, **options):
        """Wrap Join.__enter__, since ranks may have different numbers of steps."""
        self.log.write("join")
        return original(*args, **options)

    def split_layers(self, original, module, device_mesh=None, *args, **options):
        """Wrap tensor parallelism: ranks of a group share layers and batches."""
        ranks = []
        with contextlib.suppress(RuntimeError, AttributeError):  # a 2-D mesh
            ranks = torch.distributed.get_process_group_ranks(device_mesh.get_group())
        plan = args[0] if args else options.get("parallelize_plan")
        first = next(iter(plan.values()), None) if isinstance(plan, dict) else plan
        layouts = getattr(first, "input_layouts", None) or [None]
        parts = type(layouts[0]).__name__ == "Shard"  # as in sequence parallelism
        self.log.write("split", line=self.line(), ranks=ranks, parts=parts)
        return original(module, device_mesh, *args, **options)

    def split_model(self, original, *args, **options):
        """Wrap point-to-point messages, as in a pipeline."""
        self.cannot_tell("models that are split across ranks are not supported")
        return original(*args, **options)

    def message(self, original, operation, op, *args, **options):
        """Wrap P2POp, which only accepts PyTorch's own isend and irecv."""
        if "pipelining" in sys._getframe(2).f_code.co_filename:
            self.cannot_tell("pipeline stages are not supported")
        op = getattr(op, "__wrapped__", op)
        return original(operation, op, *args, **options)

    def spawn(self, original, fn, *args, **options):
        """Replace functions that start processes, since torchrun has to."""
        name = getattr(fn, "__name__", "main")
        self.cannot_tell(
            "it starts its own ranks. Let torchrun start them: instead of "
            f'mp.spawn, call {name}(int(os.environ["RANK"]), ...)'
        )

    def cannot_tell(self, why):
        """Record why the run can't be judged, and end it."""
        self.log.write("cannot_tell", why=why)
        if self.end:
            self.finish()

    def ddp_init(self, original, ddp, *args, **options):
        super().ddp_init(original, ddp, *args, **options)
        self.wrapped.append(ddp.module)
        self.types[id(ddp)] = types_of(ddp)

    def wrapper_forward(self, original, wrapper, *args, **kwargs):
        """Wrap a wrapper's forward pass. Dtypes must be as when it was created."""
        wrapped = self.types[id(wrapper)]
        now = types_of(wrapper)  # DDP ignores parameters added since
        moved = any(now.get(name, kind) != kind for name, kind in wrapped.items())
        if moved and torch.is_grad_enabled():
            self.log.found("other_type")
        return super().wrapper_forward(original, wrapper, *args, **kwargs)

    def network_call(self, original, network, *args, **kwargs):
        """Wrap a network call; in a backward pass, it's activation checkpointing's."""
        parameters = len(list(network.parameters()))
        if not (parameters or self.in_backward):
            self.write_statistics(network)
            self.saved.module_used(network)
        if self.in_backward or not parameters:
            return original(network, *args, **kwargs)
        self.passes += 1
        self.learn_names(network)
        if torch.is_grad_enabled():
            self.training_begins(network)
        elif self.end:
            self.end.note_evaluation(self.steps)
        before = generator_states()
        drawn = changed(self.states or before, before)
        if drawn and torch.is_grad_enabled():
            self.drawn()
        self.states = before
        try:
            return original(network, *args, **kwargs)
        finally:
            after = generator_states()
            if changed(self.states, after) and torch.is_grad_enabled():
                self.drawn_inside()
            given = rows([*args, *kwargs.values()])
            self.trained_on += given if torch.is_grad_enabled() else []
            self.log.write(
                "pass",
                line=self.line(),
                caller=self.log.caller(),
                grad=torch.is_grad_enabled(),
                training=getattr(network, "module", network).training,
                inside=any(network is one for one in self.wrapped),
                drawn=changed(before, after),
                before=drawn,
                rows=given,
                made=origin(network),
                id=own_number(network),
                reading=[line for line, _ in self.open][-1:],
                **({} if torch.is_grad_enabled() else self.evaluated(network)),
            )
            self.states = after

    def write_statistics(self, module, begins=False):
        """Record a module's buffers, such as means or initial random numbers."""
        buffers = state_of(module)["buffers"]
        if buffers:
            facts = {"made": origin(module), "buffers": buffers, "steps": self.steps}
            facts["looked_at"] = bool(begins or self.steps)
            self.log.write("statistics", line=self.line(), **facts)

    def evaluated(self, network):
        """Return a network's state and, if trained, a layer still in train() mode."""
        trained = any(own_number(one) in self.optimized for one in network.parameters())
        at_work = [type(one).__name__ for one in network.modules() if is_at_work(one)]
        return {**state_of(network), "at_work": at_work[:1] if trained else []}

    def drawn(self):
        """Run if numbers were drawn between a batch and a training pass."""

    def drawn_inside(self):
        """Run after a training pass that drew random numbers."""

    def training_begins(self, network):
        """Record the weights before a training pass."""
        if not self.networks:
            self.sharded.training_begins()
            frame = self.log.frame()
            lines = linecache.getlines(frame.f_code.co_filename) if frame else []
            self.log.write("source", shuffles=bool(SHUFFLES.search("".join(lines))))
        if not any(network is one for one in self.networks):
            self.networks.append(network)
            self.saved.training_begins(network)
            self.write_statistics(network, begins=True)
            if any(has_own_statistics(one) for one in network.modules()):
                self.log.write("batch_norm")
        self.write_weights(network, self.batch)

    def write_weights(self, network, batch):
        """Record the weights that all ranks have whole, at a batch or the end."""
        weights = weights_of(network, lambda parameter: parameter.requires_grad)
        which = [network is one for one in self.networks].index(True)
        if which == 0 and weights:
            weights |= self.outside()
        bare = getattr(network, "module", network)
        place = [which, *batch]
        facts = {"steps": self.steps, "weights": weights}
        facts |= {"made": origin(bare), "id": own_number(bare)}
        facts["finite"] = all(is_finite(one) for one in network.parameters())
        self.log.write("weights", place=place, **facts)

    def outside(self):
        """Return {name: digest} of optimized parameters that no network has."""
        found = {}
        for name, parameter in self.learned.items():
            if own_number(parameter) not in self.names and is_replicated(parameter):
                found[f"{name}, in no network"] = digest(parameter)
        return found

    def script_ends(self):
        """Record the final weights at the end of the script."""
        for network in self.networks:
            self.write_weights(network, ["end"])
        self.end = None  # already reached
        self.finish()

    def finish(self):
        """Record the parameters that no optimizer has, then end."""
        for network in self.networks:
            trained = {}
            for name, parameter in network.named_parameters():
                if parameter.requires_grad:
                    trained[bare(name)] = own_number(parameter)
            left = [name for name in trained if trained[name] not in self.optimized]
            if self.sharded.parts:  # FSDP may show whole parameters instead of shards
                known = {self.names.get(one) for one in self.optimized}
                left = [name for name in left if name not in known]
            if 0 < len(left) < len(trained):
                counts = {"left": len(left), "count": len(trained)}
                self.log.found("left", some(left), line=self.optimizer_line, **counts)
        super().finish()

    def backward(self, original, loss, *args, **options):
        outermost = not self.in_backward
        if outermost:
            self.backwards += 1
            value = loss.detach().item() if loss.numel() == 1 else None
            self.log.write("backward", line=self.line(), loss=value)
        super().backward(original, loss, *args, **options)
        if outermost:
            self.sharded.gradients_came()

    def step_begins(self, optimizer):
        self.sharded.step_begins(optimizer)
        super().step_begins(optimizer)

    def collective_ends(self, name, given, result):
        """Compare the keys of dicts that a collective gathers."""
        super().collective_ends(name, given, result)
        gathered = given.get("object_list", given.get("object_gather_list"))
        if "gather_object" in name and gathered:
            self.write_collisions(gathered)

    def write_collisions(self, gathered):
        """Record how many integer keys, such as sample numbers, ranks share."""
        dicts = [one for one in gathered if isinstance(one, dict)]
        keys = Counter(key for one in dicts for key in one if type(key) is int)
        twice = sum(count > 1 for count in keys.values())
        self.log.write("gathered", twice=twice)
        plain = all(isinstance(v, int | float) for one in dicts for v in one.values())
        if twice > max(1, len(keys) / 2) and not plain:  # counts may be summed
            self.log.found("collide", twice=twice, count=len(keys))

    def write_call(self, name, given):
        """Record a collective, and whether it cuts off a gradient."""
        super().write_call(name, given)
        tensors = tensors_in(list(given.values()))
        wrong = name.startswith(("all_reduce", "broadcast", "reduce", "scatter"))
        packs = "object" in name  # pickles tensors with their gaps
        if wrong and not packs and any(has_gaps(one) for one in tensors):
            self.log.found("gaps", name=name)
        tensor = given.get("tensor", given.get("input_tensor"))
        has_gradient = getattr(tensor, "requires_grad", False) and tensor.numel() > 1
        if name.startswith("all_gather") and has_gradient and torch.is_grad_enabled():
            self.log.found("cut", CUT, name=name)
