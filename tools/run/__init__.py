"""Running the stages: `make all`, `cpu`, `diff`, `compare`, `data`, `doctor`.

stages      a row for each stage: what every tool has to know about it
launch      `make ddp GPUS=0,1`: parses, plans, checks, runs and reports
plan        what a launch runs, made from make's variables without side effects
gpus        which GPUs there are, and how many processes run on them
flags       a stage's flags, read by the script's own parse_args
rendezvous  lets the nodes of a run find each other before it starts
supervise   runs a command, and ends with it all that it has started
edit        replaces texts of a script, each there exactly once
diffs       the diff between two stages, which a launch shows
compare     are the curves equal? `plots` draws them
data        MNIST, or the sample; `sample` made it, and cuts smaller sets from it
ranks       runs a script as the ranks of one torchrun, faster, for tests and the lab
compat      do the six give the same curve with another PyTorch?
doctor      is this machine ready? `probe` is what it starts on each rank
active      looks whether the active Python will do instead of .venv
install     makes .venv, and fills it or a wheelhouse; `preflight` checks that it can
misspelled  names the target or variable of make that was meant

It imports none of the other rooms.
"""
