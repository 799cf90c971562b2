import re

from tools.lab.comparison import expect_curve
from tools.lab.fake_cuda import MATMUL
from tools.lab.record import Wrong

EPOCHS = 2
WORK = 5 * MATMUL  # ms of the GPU in a step
MOST = 1  # ms a step that a wait or two may add


def check(run):
    check_on(run, "one_gpu", WORK)
    check_on(run, "slow_gpu", 2 * WORK)


def check_on(run, gpu, work):
    """Raise Wrong unless a script tells the time on a fake GPU: `work` ms a step."""
    setting = {"fake": gpu, "batch": 100}
    record = run(**setting)
    expect_curve(record, run.solution(**setting), "the solution")
    times = [float(t) for t in re.findall(r"(\d[\d.]*) ms a step", record.stdout)]
    if len(times) != EPOCHS:
        raise Wrong(
            f"There are {len(times)} lines with 'ms a step', expected one an epoch."
        )
    steps = len(record.of("step"))
    for told in times:
        expect_time(told, steps // EPOCHS, work)
    waits = len(record.of("gpu wait"))
    if waits > steps:
        raise Wrong(
            f"The script waits for the GPU {waits} times in {steps} steps. Each time "
            "the GPU stands still after that: the steps become slower."
        )


def expect_time(told, steps, work):
    """Raise Wrong unless a script tells how long the GPU works on a step, in ms."""
    said = f"The script says {told:.2f} ms a step; the GPU works {work:.2f} ms on one"
    if told < work - 0.01:
        raise Wrong(
            f"{said}. The clock was read while work was still in the queue, or the "
            f"time was divided by something else than the {steps} steps."
        )
    if told > work + MOST:
        raise Wrong(f"{said}, and a wait or two add {MOST} ms at most.")
