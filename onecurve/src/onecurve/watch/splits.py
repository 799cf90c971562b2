"""Record how a model is split across ranks, and end runs that can't be judged."""

import contextlib
import errno
import os
import sys

import torch

from onecurve.set_up.replace import replace

NOT_SERVED = "no process listens on {}:{}: torchrun's server has its own MASTER_PORT"


class Splits:
    """Writes the events `join` and `split`; recognizes pipelines."""

    def __init__(self, script):
        self.script = script
        self.log = script.log
        self.port = os.environ.get("MASTER_PORT")  # the script may set another

    def install(self):
        replace("torch.distributed.rendezvous:TCPStore", self.store)
        replace("torch.distributed.algorithms.join:Join.__enter__", self.join)
        parallel = "torch.distributed.tensor.parallel"
        replace(f"{parallel}:parallelize_module", self.split_layers)
        for name in "send", "recv", "isend", "irecv":
            replace(f"torch.distributed:{name}", self.split_model)
        for name in "__new__", "__init__":
            replace(f"torch.distributed:P2POp.{name}", self.message)

    def store(self, original, *args, **options):
        """Wrap init_process_group's store: fail at once if rank 0 waits in vain."""
        asked = str(options["port"])
        first = os.environ["RANK"] == "0"
        if first and not options["is_master"] and asked != self.port:
            told = NOT_SERVED.format(options["host_name"], asked)
            raise ConnectionRefusedError(errno.ECONNREFUSED, told)
        return original(*args, **options)

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
