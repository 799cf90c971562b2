from tools.lab.checks import Wrong, same_curve, weights
from tools.lab.standin import two_gpus


def check(run):
    seen, still = run(stand_in=two_gpus), run("--lr", "1e-12", stand_in=two_gpus)
    ours, first = weights(seen), weights(still)
    for key, value in ours.items():
        if (value - first[key]).abs().max() < 1e-9:
            raise Wrong(f"{key} did not change in training: nobody steps on it.")
    devices = {event["device"] for event in seen.of("forward")}
    if devices != {"cuda:0", "cuda:1"}:
        raise Wrong(f"All layers computed on {', '.join(devices)}: expected both GPUs.")
    same_curve(seen, run.solution(stand_in=two_gpus), "the solution")
