from tools.lab.checks import ended, equal_weights, same_curve


def check(run):
    seen = run()
    ended(seen)
    equal_weights(seen)
    same_curve(seen, run.solution(), "stage 1")
