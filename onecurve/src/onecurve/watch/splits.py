"""Record how a model is split across ranks, and end runs that can't be judged."""

import contextlib
import sys

import torch

from onecurve.set_up.replace import replace


class Splits:
    """Writes the events `join` and `split`; recognizes pipelines."""

    def __init__(self, script):
        self.script = script
        self.log = script.log

    def install(self):
        replace("torch.distributed.algorithms.join:Join.__enter__", self.join)
        parallel = "torch.distributed.tensor.parallel"
        replace(f"{parallel}:parallelize_module", self.split_layers)
        for name in "send", "recv", "isend", "irecv":
            replace(f"torch.distributed:{name}", self.split_model)
        for name in "__new__", "__init__":
            replace(f"torch.distributed:P2POp.{name}", self.message)

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
        self.log.write("split", line=self.log.line(), ranks=ranks, parts=parts)
        return original(module, device_mesh, *args, **options)

    def split_model(self, original, *args, **options):
        """Wrap point-to-point messages, as in a pipeline."""
        self.script.cannot_tell("models that are split across ranks are not supported")
        return original(*args, **options)

    def message(self, original, operation, op, *args, **options):
        """Wrap P2POp, which only accepts PyTorch's own isend and irecv."""
        if "pipelining" in sys._getframe(2).f_code.co_filename:
            self.script.cannot_tell("pipeline stages are not supported")
        op = getattr(op, "__wrapped__", op)
        return original(operation, op, *args, **options)
