# Six scripts, one loss curve. `make` prints the commands, and `make ddp GPUS=0,1` runs
# `.venv/bin/python -m tools ddp`: tools/__main__.py says which function that is. It
# reads the variables as they were typed, from MAKEFLAGS. `make` prints what follows ##.

## Six scripts, one loss curve: parallel training in PyTorch, side by side.
## Begin with 'make all' and README.md; then 'make ddp' and 04_ddp/README.md.
## The six stages
##   make all             the six in order, then compare
##   make cpu             stage 1: one process on the CPU
##   make single_gpu      stage 2: on one GPU; the diff from stage 1
##   make dp              stage 3: nn.DataParallel; the diff from stage 2
##   make ddp             stage 4: DistributedDataParallel; the diff from stage 3
##   make ddp_inference   stage 5: evaluation on every rank; the diff from stage 4
##   make model_parallel  stage 6: a model on two GPUs; the diff from stage 2
##   make compare         are the curves equal? a table, and runs/curves.png
##   make diff            any two stages, in the terminal: A=02_single_gpu B=04_ddp
##   make side_by_side    each stage beside the one before it, in the browser
##   make playground      stage 4 trains in the browser, with switches
## When the model is too large
##   make beyond          the six stages in beyond/, then compare
##   make fsdp, tensor_parallel, pipeline, hybrid  stages 7 to 10
##   make resume, sharded_checkpoint  11 and 12: continue a killed run
## The second curve: a small transformer that copies
##   make transformer     the eight stages in transformer/, then compare
##   make gpt, data_parallel, sequence_parallel, pipeline_1f1b  stages 13 to 16
##   make context_parallel, moe, expert_parallel, grid  stages 17 to 20
## The break-it lab: find the bug in a script
##   make exercises       the path through them, and how far you are
##   make exercise        begin one, in workshop/: E=05; without E the next
##   make try             run your version beside a right one
##   make check, watch    is it solved? what is wrong? once; at each save
##   make hint, solution  the next hint; the diff that solves it: E=05
##   make reset           drop your version of an exercise: E=05
##   make handouts        for instructors: sheets to print
## A closer look
##   make inspect         known silent bugs in your own script, SCRIPT=train.py
##   make notebooks       the companion notebooks, copied into workshop/
##   make bench           how fast, and why: measures this machine for minutes
##   make trace, memory   when each rank does what, S=07_fsdp; what it holds
## This machine
##   make setup           installs all that a workshop needs, then make doctor
##   make doctor          is it ready? what works, and how to fix the rest
##   make data            all of MNIST, into data/mnist; FROM=DIR: from .gz files
## For those who change something: CONTRIBUTING.md
##   make test            the tests; ALL=1: the slow ones as well
##   make site            the pages and notebooks as a web site, in _site/
##   make lint, docs, outcomes, mutants  see CONTRIBUTING.md
## NPROC=4, ARGS="--hidden 2048" and the like: make help-variables

ifeq ($(wildcard tools/asked.py),)
$(error this is not the folder of this Makefile: make -C FOLDER goes there first)
endif

PYTHON ?= python3
PY := .venv/bin/python
# What a learner's commands need, and what those of CONTRIBUTING.md need.
LEARN := .venv/learn.ready
DEV := .venv/dev.ready
# make PY=python ddp: use the packages of the active Python.
ifeq ($(origin PY),command line)
LEARN :=
DEV :=
endif

SIX := cpu single_gpu dp ddp ddp_inference model_parallel
BEYOND := fsdp tensor_parallel pipeline hybrid resume sharded_checkpoint
SECOND := gpt data_parallel sequence_parallel pipeline_1f1b context_parallel moe \
  expert_parallel grid
LAB := exercises exercise try check watch hint solution reset handouts
LOOK := compare diff side_by_side playground inspect notebooks bench trace memory
MACHINE := setup data
MAINTAIN := test site lint docs outcomes mutants
TARGETS := all beyond transformer doctor $(SIX) $(BEYOND) $(SECOND) $(LAB) $(LOOK) $(MACHINE) \
  $(MAINTAIN) help help-variables asked

override PYTHON := $(value PYTHON)
export PYTHON
export GOALS := $(MAKECMDGOALS)
# Pages and scripts are UTF-8, whatever the locale says.
export PYTHONUTF8 := 1
# Nothing that was typed is expanded: in OUT='$HOME', make would look for a variable H.
TYPED := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
$(foreach name,$(filter-out PYTHON,$(TYPED)),$(eval unexport $(name)))
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.SUFFIXES:
.PHONY: $(TARGETS)

all beyond transformer $(SIX) $(BEYOND) $(SECOND): $(LEARN) | asked
	@$(PY) -m tools $@

$(LAB) $(LOOK) $(MACHINE): $(LEARN) | asked
	@$(PY) -m tools $@

# Its last line is for an instructor, also if nothing can be installed.
doctor: $(if $(LEARN),,asked)
	@$(if $(LEARN),$(MAKE) -s $(LEARN) || { echo "$${USER:-$$(id -u)}@$$(uname -n): not ready: no .venv"; exit 1; })
	@$(PY) -m tools doctor

$(MAINTAIN): $(DEV) | asked
	@$(PY) -m tools $@

help help-variables: | asked
	@:

# Prints the help, and refuses words that it does not know, before anything is installed.
asked:
	@"$$PYTHON" -c "import sys; sys.exit(sys.version_info < (3, 10))" 2>/dev/null || \
	  { echo "$$PYTHON is not Python 3.10 or newer: make PYTHON=python3.11, say" >&2; exit 1; }
	@"$$PYTHON" -m tools.asked

# Two lists of packages, each pinned in tools/requirements/; dev has all of learn.
.venv/%.ready: tools/requirements/%.txt | asked
	@"$$PYTHON" -m tools.run.install $*
	@touch $@ $(if $(filter dev,$*),$(LEARN))

# `make 04_ddp` would find that folder, and have nothing to do.
$(filter-out $(TARGETS) Makefile,$(wildcard *)) .DEFAULT: | asked
