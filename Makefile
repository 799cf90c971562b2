# `make ddp GPUS=0,1` checks these words (tools/asked.py), creates .venv if it is missing
# and runs `.venv/bin/python -m tools ddp`, which reads GPUS=0,1 from MAKEFLAGS, as typed.
# tools/__main__.py lists the commands; a stage goes to tools/run/launch.py.
# The lines with ## are the help. tools/asked.py reads the known targets from them.

## Six scripts, one loss curve: parallel training in PyTorch, side by side.
## Begin with 'make all' and README.md, then 'make ddp' and 04_ddp/README.md.
## The six stages
##   make all             all six in order, then compare
##   make cpu             stage 1: one process on the CPU
##   make single_gpu      stage 2: one GPU; diff from stage 1
##   make dp              stage 3: nn.DataParallel; diff from stage 2
##   make ddp             stage 4: DistributedDataParallel; diff from stage 2
##   make ddp_inference   stage 5: evaluation on every rank; diff from stage 4
##   make model_parallel  stage 6: a model on two GPUs; diff from stage 2
##   make compare         check that the curves match: a table and runs/curves.png
##   make diff            diff two stages in the terminal: A=02_single_gpu B=04_ddp
##   make side_by_side    each stage next to the previous one, in the browser
##   make playground      train stage 4 in the browser, with switches
## When the model is too large
##   make beyond          the six stages in beyond/, then compare
##   make fsdp, tensor_parallel, pipeline, hybrid  stages 7 to 10
##   make resume, sharded_checkpoint  stages 11 and 12: continue a killed run
## A second curve: a small transformer that learns to copy
##   make transformer     the nine stages in transformer/, then compare
##   make gpt, data_parallel, sequence_parallel, pipeline_1f1b  stages 13 to 16
##   make context_parallel, moe, expert_parallel, grid, lost_rank  stages 17 to 21
## The break-it lab: find the bug in a script
##   make exercises       list the exercises and your progress
##   make exercise        start one in workshop/: E=05; without E, the next one
##   make try             run your version next to a correct one
##   make check, watch    check your solution: once, or after each save
##   make hint, solution  show the next hint, or the solution as a diff: E=05
##   make reset           discard your version of an exercise: E=05
## A closer look
##   make inspect         find known silent bugs in your script: SCRIPT=train.py
##   make notebooks       open copies of the companion notebooks in workshop/
##   make bench           training speed on this machine, explained; takes minutes
##   make trace, memory   each rank's timeline (S=07_fsdp) or its memory
## This machine
##   make setup           install everything for a workshop, then run make doctor
##   make doctor          show what works and how to fix the rest
##   make data            get all of MNIST in data/mnist; FROM=DIR: from .gz files
## For contributors: see CONTRIBUTING.md
##   make test            run the tests; ALL=1: also the slow ones
##   make site            build the pages and notebooks as a web site in _site/
##   make lint, docs, outcomes, mutants  see CONTRIBUTING.md
## For variables such as NPROC=4 or ARGS="--hidden 2048": make help-variables

ifeq ($(wildcard tools/asked.py),)
$(error run make in this Makefile's folder: make -C FOLDER, not make -f FOLDER/Makefile)
endif

PYTHON ?= python3
PY := .venv/bin/python
# These empty files say that packages are installed: a learner's, and a contributor's.
LEARN := .venv/learn.ready
DEV := .venv/dev.ready
# `make PY=python ddp` installs nothing and uses that Python's packages.
ifeq ($(origin PY),command line)
LEARN :=
DEV :=
endif

SIX := cpu single_gpu dp ddp ddp_inference model_parallel
BEYOND := fsdp tensor_parallel pipeline hybrid resume sharded_checkpoint
SECOND := gpt data_parallel sequence_parallel pipeline_1f1b context_parallel moe \
  expert_parallel grid lost_rank
LAB := exercises exercise try check watch hint solution reset
LOOK := compare diff side_by_side playground inspect notebooks bench trace memory
MACHINE := setup data
MAINTAIN := test site lint docs outcomes mutants
TARGETS := all beyond transformer doctor $(SIX) $(BEYOND) $(SECOND) $(LAB) $(LOOK) $(MACHINE) \
  $(MAINTAIN) help help-variables asked

# The recipes' "$$PYTHON" is PYTHON as typed. tools/asked.py reads GOALS.
override PYTHON := $(value PYTHON)
export PYTHON
export GOALS := $(MAKECMDGOALS)
# Pages and scripts are UTF-8 in any locale.
export PYTHONUTF8 := 1
# make would expand a typed variable to export it: OUT='$HOME' would become $(H)OME.
TYPED := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
$(foreach name,$(TYPED),$(eval unexport $(name)))
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: $(TARGETS)

all beyond transformer $(SIX) $(BEYOND) $(SECOND) $(LAB) $(LOOK) $(MACHINE): $(LEARN) | asked
	@$(PY) -m tools $@

# Installs in a second make, so that its last line, for the instructor, comes in any case.
doctor: $(if $(LEARN),,asked)
	@$(if $(LEARN),$(MAKE) -s $(LEARN) || { echo "$${USER:-$$(id -u)}@$$(uname -n): not ready: stopped before the checks"; exit 1; })
	@$(PY) -m tools doctor

$(MAINTAIN): $(DEV) | asked
	@$(PY) -m tools $@

help help-variables: | asked
	@:

# Runs first. It prints the help, or stops at an unknown target or variable (GPU=0).
asked:
	@"$$PYTHON" -c "import sys; sys.exit(sys.version_info < (3, 10))" 2>/dev/null || \
	  { echo "$$PYTHON is not Python 3.10 or newer: make PYTHON=python3.11, say" >&2; exit 1; }
	@"$$PYTHON" -m tools.asked

# Creates .venv and installs a list of pinned packages. The list dev includes learn.
.venv/%.ready: tools/requirements/%.txt | asked
	@"$$PYTHON" -m tools.run.install $*
	@touch $@ $(if $(filter dev,$*),$(LEARN))

# A folder's name, such as 04_ddp, is no target: `asked` rejects it and other words.
$(filter-out $(TARGETS) Makefile,$(wildcard *)): | asked
.DEFAULT:
	@"$$PYTHON" -m tools.asked
