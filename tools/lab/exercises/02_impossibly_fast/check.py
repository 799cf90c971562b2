import re

from tools.lab.fake_cuda import FAST, MATMUL
from tools.lab.record import Wrong

EPOCHS = 2

MOST = 1  # ms a step that a wait or two may add


def check(run):
    # another GPU and another number of steps: what is told is what was measured
    for gpu, speed, batch in ("one_gpu", 1, 64), ("fast_gpu", FAST, 100):
        record = run(fake=gpu, batch=batch)
        record.expect_curve(run.solution(fake=gpu, batch=batch), "the solution")
        times = [float(t) for t in re.findall(r"(\d[\d.]*) ms a step", record.stdout)]
        if len(times) != EPOCHS:
            raise Wrong(
                f"There are {len(times)} lines with 'ms a step', expected one an epoch."
            )
        steps = len(record.of("step"))
        for told in times:
            expect_time(told, 5 * MATMUL / speed, steps // EPOCHS)
        waits = steps_with_a_wait(record)
        if waits > steps / 2:
            raise Wrong(
                f"The script waits for the GPU before {waits} of {steps} steps. Each "
                "time the GPU stands still after that: the steps become slower."
            )


def expect_time(told, work, steps):
    """Raise Wrong unless a script tells how long the GPU works on a step, in ms."""
    said = f"The script says {told:.2f} ms a step; the GPU works {work:.2f} ms on one"
    if told < work - 0.01:
        raise Wrong(
            f"{said}. The clock was read while work was still in the queue, or the "
            f"time was divided by something else than the {steps} steps."
        )
    if told > work + MOST:
        raise Wrong(f"{said}, and a wait or two add {MOST} ms at most.")


def steps_with_a_wait(record):
    """Return before how many steps the script waited for the GPU."""
    count = 0
    waited = False  # since the last step
    for event in record.events[0]:
        waited |= event["kind"] == "gpu wait"
        if event["kind"] == "step":
            count += waited
            waited = False
    return count
