from tools.lab.checks import Wrong, learns, shared_out

BATCH, RATE, PROCESSES = 64, 0.1, 2  # the defaults of the script


def check(run):
    seen = run(processes=PROCESSES)
    learns(seen)
    shared_out(seen)
    step = sum(len(seen.epochs(rank)[0][0]) for rank in range(PROCESSES))
    rate = seen.of("step")[0]["lr"]
    if abs(rate / step - RATE / BATCH) > 1e-9:
        raise Wrong(
            f"The {PROCESSES} ranks together take {step} images a step, with a "
            f"learning rate of {rate:g}. The rate of {RATE} is meant for {BATCH} "
            "images."
        )
