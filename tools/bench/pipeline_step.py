"""In which order four ranks of a pipeline work: for the picture of GPipe and 1F1B.

A script for four ranks. It prints one line of JSON: {"GPipe": [[[kind, micro-batch],
...] of rank 0, ...], "1F1B": ...}, the forward and backward passes of a step.
"""

import json

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining

MICRO_BATCHES = 8
WIDTH = 4


class Part(nn.Linear):
    """A part of a model, which notes when it works, in `order`."""

    def __init__(self):
        super().__init__(WIDTH, WIDTH)
        self.order = []

    def forward(self, x):
        self.note("forward")
        x = super().forward(x)
        x.register_hook(lambda _: self.note("backward"))
        return x

    def note(self, kind):
        done = [one for one, _ in self.order]
        self.order.append([kind, done.count(kind)])


def order(schedule):
    """Return what this rank does in a step of a schedule, in order."""
    part = Part()
    place, size = dist.get_rank(), dist.get_world_size()
    stage = pipelining.PipelineStage(part, place, size, torch.device("cpu"))
    runs = schedule(stage, MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    batch = torch.rand(MICRO_BATCHES, WIDTH)
    for _ in range(2):  # in the first one it finds out the shapes
        part.order.clear()
        runs.step(*([batch] if place == 0 else []), target=batch)
    return part.order


def main():
    dist.init_process_group("gloo")
    kinds = {"GPipe": pipelining.ScheduleGPipe, "1F1B": pipelining.Schedule1F1B}
    found = {}
    for name, schedule in kinds.items():
        found[name] = [None] * dist.get_world_size()
        dist.all_gather_object(found[name], order(schedule))
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
