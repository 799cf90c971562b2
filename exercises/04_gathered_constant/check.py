from tools.lab.checks import same_curve
from tools.lab.standin import data_parallel


def check(run):
    same_curve(run(stand_in=data_parallel), run.solution(), "one GPU")
