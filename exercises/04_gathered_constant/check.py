from tools.lab.checks import same_curve
from tools.lab.standin import two_gpus


def check(run):
    same_curve(run(stand_in=two_gpus), run.solution(), "one GPU")
