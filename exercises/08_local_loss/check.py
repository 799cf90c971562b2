from tools.lab.checks import Wrong, ended, same_curve


def check(run):
    seen, expected = run(), run.solution()
    ended(seen)
    if seen.rows and abs(seen.rows[0][0] / expected.rows[0][0] - 1) > 1e-9:
        raise Wrong(
            f"The loss of epoch 1 is given as {seen.rows[0][0]:.6f}; the mean over the "
            f"images of all ranks is {expected.rows[0][0]:.6f}. The images of rank "
            "0 are half of them."
        )
    same_curve(seen, expected, "stage 1")
