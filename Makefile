# Six scripts, one loss curve. `make` prints the commands, and `make ddp GPUS=0,1` runs
# `.venv/bin/python -m tools ddp`: tools/__main__.py says which function that is. It
# reads the variables as they were typed, from MAKEFLAGS.

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
