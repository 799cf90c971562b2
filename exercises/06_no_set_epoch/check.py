from tools.lab.checks import Wrong, ended, same_curve, shared_out


def check(run):
    seen = run()
    ended(seen)
    shared_out(seen)
    first, second = seen.epochs(0)
    if first == second:
        raise Wrong(
            "Epoch 2 has the images in the order of epoch 1, on every rank: "
            f"{first[0][:4]} … first in both."
        )
    same_curve(seen, run.solution(), "stage 1")
