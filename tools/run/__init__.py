"""Running the stages: `make all`, `cpu`, `diff`, `compare`, `data`, `doctor`.

stages   the six, and what everybody has to know about them
launch   what `make ddp GPUS=0,1` runs: plans it, refuses what cannot work, runs it
rendezvous lets the nodes of a run find each other before it starts
diffs    the diff between two stages, which a launch shows
compare  are the curves equal? `plots` draws them
data     MNIST, or the sample; `sample` made it, and cuts smaller sets from it
supervise runs a command for launch, and ends with it all that it has started
ranks    runs a script as the ranks of one torchrun, faster, for tests and the lab
compat   do the six give the same curve with another PyTorch?
doctor   is this machine ready? `probe` is what it starts on each rank
active   looks whether the active Python will do instead of .venv
install  makes .venv, and fills it or a wheelhouse; `preflight` checks that it can

It imports none of the other rooms.
"""
