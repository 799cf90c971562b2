import re

from tools.lab.fake_cuda.devices import MATMUL, UPDATE, WAIT
from tools.lab.record import Wrong

WORK = {  # ms per step
    "one_gpu": 5 * MATMUL + 4 * UPDATE,
    "slow_gpu": 10 * MATMUL + 4 * UPDATE,
}
WAITS = 4  # that an answer may add to an epoch


def step_time(record, runs):
    """The script reports about the time per step that the fake GPU takes."""
    epochs = record.setting.epochs
    times = [float(t) for t in re.findall(r"(\d[\d.]*) ms a step", record.stdout)]
    if len(times) != epochs:
        raise Wrong(
            f"There are {len(times)} lines with 'ms a step', expected one per epoch."
        )
    steps = len(record.of("step"))
    for told in times:
        expect_time(told, steps // epochs, WORK[record.setting.fake])
    expected = runs.solution(**vars(record.setting))
    waits = len(record.of("gpu wait"))
    most = len(expected.of("gpu wait")) + WAITS * epochs
    if waits > most:
        raise Wrong(
            f"The script waits for the GPU {waits} times in {steps} steps, expected at "
            f"most {most}. The GPU is idle after each wait, so the steps become slower."
        )


def expect_time(told, steps, work):
    """Raise Wrong unless a reported time per step matches the GPU's, in ms."""
    said = f"The script reports {told:.2f} ms a step, but the GPU takes {work:.2f} ms"
    if told < work - 0.01:
        raise Wrong(
            f"{said}. The clock was read while work was still in the queue, or the "
            f"time was not divided by the {steps} steps."
        )
    most = (WAITS * WAIT + 1) / steps  # that waits may add
    if told > work + most:
        raise Wrong(f"{said}, waits included at most {work + most:.2f} ms.")
