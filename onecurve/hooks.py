"""What is written down of a run as it is: the events that the rules read."""

import contextlib
import sys

import torch

from onecurve.events import digest, has_gaps, is_zero, tensors_in
from onecurve.loaders import Loaders
from onecurve.origins import origin
from onecurve.pretend import UnsyncedBatchNorm
from onecurve.replace import replace
from onecurve.samples import changed, generator_states, rows
from onecurve.sharded import Sharded

MOST_STEPS = 32  # of a script that has no epochs


class Hooks(Loaders):
    """Writes down what a rank does; ends it after some epochs or steps."""

    def __init__(self, log, end=None):
        super().__init__(log, end)
        self.wrapped = []  # the modules that DDP wraps
        self.types = {}  # id of a wrapper -> the types of what it wrapped
        self.networks = []  # that were called for training
        self.optimized = set()  # ids of the parameters that optimizers have
        self.sharded = Sharded(log)
        self.stepping = 0  # an optimizer may call the step of another

    def install(self):
        """Put the methods below in place."""
        super().install()
        self.sharded.install()
        replace("torch.nn:Module.load_state_dict", self.load)
        replace("torch.distributed.algorithms.join:Join.__enter__", self.join)
        parallel = "torch.distributed.tensor.parallel"
        replace(f"{parallel}:parallelize_module", self.split_layers)
        for name in "send", "recv", "isend", "irecv":
            replace(f"torch.distributed:{name}", self.split_model)
        for name in "__new__", "__init__":
            replace(f"torch.distributed:P2POp.{name}", self.message)
        for name in "spawn", "start_processes":
            replace(f"torch.multiprocessing:{name}", self.spawn)
        for name in "clip_grad_norm_", "clip_grad_value_":
            replace(f"torch.nn.utils:{name}", self.clip)
        schedulers = "torch.optim.lr_scheduler"
        replace(f"{schedulers}:LRScheduler.__init__", self.made)
        replace("torch.optim:Optimizer.__init__", self.made)
        replace(f"{schedulers}:LRScheduler.step", self.schedule)
        replace(f"{schedulers}:ReduceLROnPlateau.step", self.schedule_by)

    def load(self, original, module, state_dict, *args, **options):
        """Around the loading of weights: with strict=False, none may fit in silence."""
        result = original(module, state_dict, *args, **options)
        names = {name for name, _ in module.named_parameters()}
        if names and names <= set(result.missing_keys):
            found = min(state_dict, default="none at all")
            self.log.write("loaded_nothing", line=self.line(), name=found)
        return result

    def join(self, original, *args, **options):
        """Around the beginning of a Join: the ranks may have other numbers of steps."""
        self.log.write("join")
        return original(*args, **options)

    def split_layers(self, original, module, device_mesh=None, *args, **options):
        """Around tensor parallelism: the ranks of a group share layers, and batches."""
        ranks = []
        with contextlib.suppress(RuntimeError, AttributeError):  # a mesh of two sides
            ranks = torch.distributed.get_process_group_ranks(device_mesh.get_group())
        plan = args[0] if args else options.get("parallelize_plan")
        first = next(iter(plan.values()), None) if isinstance(plan, dict) else plan
        layouts = getattr(first, "input_layouts", None) or [None]
        parts = type(layouts[0]).__name__ == "Shard"  # as in sequence parallelism
        self.log.write("split", ranks=ranks, parts=parts)
        return original(module, device_mesh, *args, **options)

    def split_model(self, original, *args, **options):
        """Around messages as in a pipeline."""
        self.cannot_tell("a model that is split among ranks is not looked at")
        return original(*args, **options)

    def message(self, original, operation, op, *args, **options):
        """Around a message of a batch, by PyTorch's own isend or irecv."""
        if "pipelining" in sys._getframe(2).f_code.co_filename:
            self.cannot_tell("a pipeline's stages are not looked at")
        op = getattr(op, "__wrapped__", op)
        return original(operation, op, *args, **options)

    def spawn(self, original, function, *args, **options):
        """In place of what starts processes: torchrun is to start them."""
        name = getattr(function, "__name__", "main")
        self.cannot_tell(
            "it starts its ranks by itself. Have torchrun start them: in place of "
            f'mp.spawn, call {name}(int(os.environ["RANK"]), ...)'
        )

    def cannot_tell(self, why):
        """Say why the rules cannot tell; nothing more of this run is needed."""
        self.log.write("cannot_tell", why=why)
        if self.end:
            self.finish()

    def ddp_init(self, original, ddp, *args, **options):
        """Around the constructor of DDP."""
        super().ddp_init(original, ddp, *args, **options)
        self.wrapped.append(ddp.module)
        self.types[id(ddp)] = types_of(ddp)

    def wrapper_forward(self, original, wrapper, *args, **kwargs):
        """Around a wrapper's forward pass: its parameters are to be as it got them."""
        wrapped = self.types[id(wrapper)]
        now = types_of(wrapper)  # of those added since, DDP knows nothing
        moved = any(now.get(name, kind) != kind for name, kind in wrapped.items())
        if moved and torch.is_grad_enabled():
            self.log.write("other_type", line=self.line())
        return super().wrapper_forward(original, wrapper, *args, **kwargs)

    def network_call(self, original, network, *args, **kwargs):
        """Around a call of the network; what has no parameters is none.

        One in a backward pass is activation checkpointing's, and no pass of its own.
        """
        parameters = len(list(network.parameters()))
        if self.in_backward and parameters:
            self.log.write("recomputed", parameters=parameters)
        if self.in_backward or not parameters:
            return original(network, *args, **kwargs)
        self.passes += 1
        self.learn_names(network)
        if torch.is_grad_enabled():
            self.training_begins(network)
        before = generator_states()
        try:
            return original(network, *args, **kwargs)
        finally:
            after = generator_states()
            self.log.write(
                "pass",
                line=self.line(),
                grad=torch.is_grad_enabled(),
                training=getattr(network, "module", network).training,
                inside=any(network is one for one in self.wrapped),
                drawn=changed(before, after),
                before=changed(self.states or before, before),
                rows=rows([*args, *kwargs.values()]),
                made=origin(network),
                id=id(network),
                **({} if torch.is_grad_enabled() else state_of(network)),
            )
            self.states = after

    def training_begins(self, network):
        """Before a pass for training: write down with which weights it begins."""
        if not self.networks:
            self.sharded.training_begins()
        if not any(network is one for one in self.networks):
            self.networks.append(network)
        self.write_weights(network, self.batch)

    def write_weights(self, network, batch):
        """Write down the weights that all ranks have whole, at a batch or the end."""
        weights = weights_of(network, lambda parameter: parameter.requires_grad)
        which = [network is one for one in self.networks].index(True)
        made = origin(getattr(network, "module", network))
        place = [which, *batch]
        facts = {"steps": self.steps, "weights": weights, "made": made}
        self.log.write("weights", place=place, **facts)

    def script_ends(self):
        """When the script has come to its end: write down with which weights."""
        for network in self.networks:
            self.write_weights(network, ["end"])
        self.end = None  # it has come
        self.finish()

    def finish(self):
        """Write down which parameters no optimizer has, before all ends."""
        for network in self.networks:
            trained = {}
            for name, parameter in network.named_parameters():
                if parameter.requires_grad:
                    trained[name.removeprefix("module.")] = id(parameter)
            left = [name for name in trained if trained[name] not in self.optimized]
            self.log.write("left", names=left, count=len(trained))
        super().finish()

    def backward(self, original, loss, *args, **options):
        """Around Tensor.backward."""
        if not self.in_backward:
            self.backwards += 1
            value = loss.detach().item() if loss.numel() == 1 else None
            self.log.write("backward", line=self.line(), loss=value)
        return super().backward(original, loss, *args, **options)

    def write_call(self, name, given):
        """Write the event for a collective, and one where it cuts off a gradient."""
        super().write_call(name, given)
        if any(has_gaps(one) for one in tensors_in(list(given.values()))):
            self.log.write("gaps", name=name, line=self.line())
        tensor = given.get("tensor", given.get("input_tensor"))
        has_gradient = getattr(tensor, "requires_grad", False) and tensor.numel() > 1
        if name.startswith("all_gather") and has_gradient and torch.is_grad_enabled():
            self.log.write("cut", name=name, line=self.line())

    def clip(self, original, *args, **options):
        """Around the clipping of gradients."""
        norm = original(*args, **options)
        if type(norm) is torch.Tensor:  # not a DTensor
            self.log.write("clip", line=self.line(), norm=float(norm))
        return norm

    def made(self, original, one, *args, **options):
        """Around the constructor of an optimizer or a scheduler."""
        original(one, *args, **options)
        schedules = not isinstance(one, torch.optim.Optimizer)
        if not schedules:
            self.learn_optimized(one)
        self.log.write("made", schedules=schedules, line=self.line())

    def learn_optimized(self, optimizer):
        """Remember which parameters an optimizer has."""
        for group in optimizer.param_groups:
            self.optimized.update(id(one) for one in group["params"])

    def schedule(self, original, scheduler, *args, **options):
        """Around the step of a scheduler."""
        self.log.write("schedule", line=self.line(), metric=None)
        return original(scheduler, *args, **options)

    def schedule_by(self, original, scheduler, metrics, *args, **options):
        """Around the step of a scheduler that goes by a number."""
        self.log.write("schedule", line=self.line(), metric=float(metrics))
        return original(scheduler, metrics, *args, **options)

    def before_step(self, optimizer, args, kwargs):
        """Before a step of an optimizer."""
        self.stepping += 1
        if self.stepping == 1:
            self.step_begins(optimizer)

    def step_begins(self, optimizer):
        """Before the step of an optimizer that no other one calls."""
        self.learn_optimized(optimizer)
        gradients = {}
        zero = True
        for name, parameter in self.parameters(optimizer).items():
            if parameter.grad is not None:
                gradients[name] = digest(parameter.grad)
                zero = zero and is_zero(parameter.grad)
        line = self.line()
        self.log.write("before_step", line=line, gradients=gradients, zero=zero)

    def after_step(self, optimizer, args, kwargs):
        """After a step of an optimizer."""
        self.stepping -= 1
        if self.stepping == 0:
            self.step_ends(optimizer)

    def step_ends(self, optimizer):
        """After the step of an optimizer that no other one calls."""
        self.steps += 1
        groups = optimizer.param_groups
        rates = [float(group["lr"]) for group in groups]
        bases = [float(group.get("initial_lr", group["lr"])) for group in groups]
        facts = {"rates": rates, "bases": bases, "id": id(optimizer)}
        self.log.write("step", line=self.line(), **facts)
        self.states = generator_states()
        if self.end and self.steps >= MOST_STEPS:
            self.finish()


def types_of(module):
    """Return the types of a module's parameters by name."""
    return {name: parameter.dtype for name, parameter in module.named_parameters()}


def is_replicated(parameter):
    """Return whether each rank has the whole parameter."""
    placements = getattr(parameter, "placements", ())
    return all(placement.is_replicate() for placement in placements)


def weights_of(network, wanted):
    """Return digests of the weights that all ranks have whole, and that are wanted."""
    found = {}
    for name, parameter in network.named_parameters():
        if wanted(parameter) and is_replicated(parameter):
            found[name.removeprefix("module.")] = digest(parameter)
    return found


def state_of(network):
    """Return digests of a network's weights and buffers, by names without a wrapper."""
    buffers = {}
    if not UnsyncedBatchNorm.used:
        for name, buffer in network.named_buffers():
            buffers[name.removeprefix("module.")] = digest(buffer)
    return {"weights": weights_of(network, lambda parameter: True), "buffers": buffers}
