"""The break-it lab: `make exercises`, `exercise`, `try`, `check`, `hint`, `solution`.

commands  what a learner calls
exercise  an exercise by its folder: its page, its scripts, how a script of it is run
answers   the kinds of right and wrong answers that the checks are tried on
checks    what the exercises' own check.py share
recorder  what each rank writes down of a run
run_record  what the checks know of a run, once it has ended
patches   what the lab replaces of PyTorch for that, and why
fake_cuda fake GPUs on a CPU, for mistakes that show only there
fake      runs a script on them

It imports `run`.
"""
