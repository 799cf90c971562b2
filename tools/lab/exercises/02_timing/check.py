import re

from tools.lab.checks import EPOCHS, TRAIN, Wrong, learns
from tools.lab.fake_cuda import FAST, MATMUL, fast_gpu, one_gpu

TRY = {"fake": "one_gpu"}

MOST = 1  # ms a step that a wait or two may add


def steps_of(record):
    """Return how many steps an epoch of a run took."""
    return len(record.of("step")) // EPOCHS


def check(run):
    # another GPU and another number of steps: what is told is what was measured
    for gpu, speed, batch in (one_gpu, 1, 64), (fast_gpu, FAST, 100):
        record = run(batch=batch, fake=gpu)
        learns(record)
        least = 5 * MATMUL / speed  # the work of a step
        times = [float(t) for t in re.findall(r"(\d[\d.]*) ms a step", record.stdout)]
        if len(times) != EPOCHS:
            raise Wrong(
                f"There are {len(times)} lines with 'ms a step', expected one an epoch."
            )
        for told in times:
            if told < least - 0.01:
                why = "The clock was read while work was still in the queue."
                if told > least / 2:
                    why = (
                        "Either the clock was read before the last step was over, or "
                        f"the time was not divided by the {steps_of(record)} steps."
                    )
                raise Wrong(
                    f"The script says {told:.2f} ms a step; the GPU works {least:.2f} "
                    f"ms on one. {why}"
                )
            if told > least + MOST:
                raise Wrong(
                    f"The script says {told:.2f} ms a step; the GPU works {least:.2f} "
                    f"ms on one, and a wait or two add {MOST} ms at most."
                )
        steps = 0
        waits = 0
        waited = False  # since the last step
        for event in record.events[0]:
            waited |= event["kind"] == "wait"
            if event["kind"] == "step":
                steps += 1
                waits += waited
                waited = False
        if steps < EPOCHS * TRAIN // batch:
            raise Wrong(f"The script takes {steps} steps: it no longer trains.")
        if waits > steps / 2:
            raise Wrong(
                f"The script waits for the GPU before {waits} of {steps} steps. Each "
                "time the GPU stands still after that: the steps become slower."
            )
