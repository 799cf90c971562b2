"""Record a network's passes: weights, samples and random numbers."""

import linecache
import re

import torch

from onecurve.set_up.replace import replace
from onecurve.watch.events import bare
from onecurve.watch.identities import own_number
from onecurve.watch.networks import has_own_statistics, state_of, weights_of
from onecurve.watch.origins import origin
from onecurve.watch.samples import changed, generator_states, rows
from onecurve.wording import some

BY_COUNT = r"\b\w*(max|total|num|n)_(?!warm)\w*(step|iter)"
SAYS = {  # what a script's source says
    "sets_epoch": re.compile("set_epoch"),
    "shuffles": re.compile(r"shuffl|randperm|permut|sample\(|choice|argsort"),
    "by_steps": re.compile(
        rf"(while|if) .*(step|iter)\w* *[<>=]+.*{BY_COUNT}|range\(.*{BY_COUNT}"
    ),
}


class Training:
    """Writes the events `pass`, `weights` and similar ones."""

    def __init__(self, script, sharded, writes):
        self.script = script
        self.log = script.log
        self.sharded = sharded  # what FSDP shards
        self.writes = writes  # by lines of the script
        self.before = None  # states of the generators before the current pass
        self.drawn = {}  # generators used since a batch, pass or step
        self.shared = {}  # states of the generators after the latest broadcast

    def install(self):
        replace("torch.nn:Module.load_state_dict", self.load)

    def load(self, original, module, state_dict, *args, **options):
        """Wrap load_state_dict: with strict=False, the file may not fit at all."""
        result = original(module, state_dict, *args, **options)
        self.writes.add(self.log.line(), map(own_number, module.parameters()))
        names = {name for name, _ in module.named_parameters()}
        if names and names <= set(result.missing_keys):
            first = f"first name in the file: {min(state_dict, default='none')}"
            self.log.found("loaded", first, f"in the model: {min(names)}")
        return result

    def pass_begins(self, network):
        """Record weights, and whether random numbers were drawn since the batch."""
        script = self.script
        if torch.is_grad_enabled():
            if not any(network is one for one in script.networks):
                script.tell("first_pass", network)
                script.networks.append(network)
            self.write_weights(network, script.batch)
        elif script.end:
            script.end.note_evaluation(script.steps)
        self.before = generator_states()
        drawn = changed(script.states or self.before, self.before)
        if drawn and torch.is_grad_enabled():
            script.tell("drew")
        self.drawn = self.not_shared(drawn, self.before)
        script.states = self.before

    def collective_ends(self, name, given, result):
        if name.startswith("broadcast"):
            self.shared = generator_states()

    def not_shared(self, drawn, now):
        """Return the generators `drawn` from since a broadcast, if there was one.

        What was drawn before it may be what it makes equal.
        """
        return {one: drawn[one] for one in drawn if self.shared.get(one) != now[one]}

    def first_pass(self, network):
        """Record what a network is like before its first training pass."""
        if not self.script.networks:
            frame = self.log.frame()
            lines = linecache.getlines(frame.f_code.co_filename) if frame else []
            found = {
                name: bool(one.search("".join(lines))) for name, one in SAYS.items()
            }
            self.log.write("source", **found)
        if any(has_own_statistics(one) for one in network.modules()):
            self.log.write("batch_norm")

    def pass_ends(self, network, given):
        """Record a pass; `given` are the arguments."""
        script = self.script
        trains = torch.is_grad_enabled()
        after = generator_states()
        if changed(script.states, after) and trains:
            script.tell("drew_inside")
        state = {}
        if not trains:
            state = {**state_of(network), "written": self.writes.found(network)}
        samples = rows(given)
        script.trained_on += [samples] if trains else []
        self.log.write(
            "pass",
            line=self.log.line(),
            caller=self.log.caller(),
            grad=trains,
            training=getattr(network, "module", network).training,
            drawn=self.not_shared(changed(self.before, after), after),
            before=self.drawn,
            rows=samples,
            made=origin(network),
            id=own_number(network),
            reading=[line for line, _ in script.open][-1:],
            **state,
        )
        script.states = after

    def write_weights(self, network, batch):
        """Record the weights that all ranks have whole, at a batch or the end."""
        ends = batch == ["end"]  # frozen weights are compared once
        name_of = self.script.name_of
        weights = weights_of(network, lambda one: ends or one.requires_grad, name_of)
        which = [network is one for one in self.script.networks].index(True)
        module = getattr(network, "module", network)
        facts = {"steps": self.script.steps, "weights": weights}
        facts |= {"made": origin(module), "id": own_number(module)}
        facts["written"] = self.writes.taken(module, name_of)
        self.log.write("weights", place=[which, *batch], **facts)

    def script_ends(self):
        self.log.write_way()
        for network in self.script.networks:
            self.write_weights(network, ["end"])

    def finish(self):
        """Record the parameters that no optimizer has."""
        script = self.script
        for network in script.networks:
            trained = {}
            for name, parameter in network.named_parameters():
                if parameter.requires_grad:
                    trained[bare(name)] = own_number(parameter)
            left = [name for name in trained if trained[name] not in script.optimized]
            if self.sharded.parts:  # FSDP may show whole parameters instead of shards
                known = {script.names.get(one) for one in script.optimized}
                left = [name for name in left if name not in known]
            if 0 < len(left) < len(trained):
                facts = {"left": len(left), "count": len(trained)}
                facts["line"] = script.optimizer_made
                told = [some(left)]
                if script.stale:
                    told.append(f"{script.stale} tensors in it are not the model's")
                    facts["level"] = "ERROR"
                self.log.found("not_optimized", *told, **facts)
