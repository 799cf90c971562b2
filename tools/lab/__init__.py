"""The break-it lab: `make exercises`, `exercise`, `try`, `check`, `hint`, `solution`.

commands  what a learner calls
exercise  an exercise by its folder: its page, its scripts, how a script of it is run
answers   the kinds of right and wrong answers that the checks are tried on
checks    what the exercises' own check.py share
observe   what is seen of a run, in each rank and afterwards
patches   what the lab replaces of PyTorch for that, and why
standin   GPUs played on a CPU, for mistakes that show only there
pretend   runs a script on them

It imports `run`.
"""
