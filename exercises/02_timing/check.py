import re

from tools.lab.checks import Wrong, ended
from tools.lab.standin import BACKWARD, LINEAR, one_gpu


def check(run):
    seen = run(stand_in=one_gpu)
    ended(seen)
    times = [float(text) for text in re.findall(r"([\d.]+) ms a step", seen.stdout)]
    if len(times) != 2:
        raise Wrong(
            f"There are {len(times)} lines with 'ms a step', expected one an epoch."
        )
    least = 2 * LINEAR + BACKWARD  # the work of a step
    for told in times:
        if told < least:
            raise Wrong(
                f"The script says {told:.2f} ms a step; the GPU works {least:.2f} "
                "ms on one. The clock was read while work was still in the queue."
            )
        if told > least + 1:
            raise Wrong(
                f"The script says {told:.2f} ms a step; without waiting in each "
                f"step it is {least:.2f} ms and a little."
            )
