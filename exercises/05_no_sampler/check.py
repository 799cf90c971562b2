from tools.lab.checks import Wrong, equal_weights, learns, shared_out


def check(run):
    seen = run()
    learns(seen)
    shared_out(seen)
    equal_weights(seen)
    first, second = seen.epochs(0)
    if first == second:
        raise Wrong("The second epoch has the images in the order of the first.")
