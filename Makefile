# Six scripts, one loss curve. `make` prints what there is.

ifeq ($(wildcard tools/run/launch.py),)
$(error this is not the folder of this Makefile: make -C FOLDER goes there first)
endif

# Variables of the command line reach the recipes' environment by themselves, and there
# a recipe takes them: "$$WHO" is a text, but what "$(WHO)" puts in is read by the shell
# (as only ARGS are, on purpose). `export` would hand on empty ones that nobody gave.
# Those that are not named in here are refused.
KNOWN := $(sort $(shell grep -oE '[A-Z_]+=' Makefile | tr -d =))
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
# The shell's own DATA or WHO is not meant for this: only what make is given counts.
OF_SHELL := $(filter-out $(GIVEN) OMP_NUM_THREADS PYTHON TORCH_INDEX,$(KNOWN))
$(foreach name,$(OF_SHELL),$(eval $(name) :=))

PYTHON ?= python3
export PYTHON
PY := .venv/bin/python
# what a target needs: the stages, compare and the lab; notebooks too; the tests too
STAGES := .venv/stages.ready
NOTEBOOKS := .venv/notebooks.ready
DEV := .venv/dev.ready
HOLDS_notebooks := $(STAGES)
HOLDS_dev := $(STAGES) $(NOTEBOOKS)
BIN := .venv/bin/
UV := $(or $(wildcard .venv/bin/uv),uv)
ifeq ($(VENV),none)
PY := "$$PYTHON"
STAGES := active.stages
NOTEBOOKS := active.notebooks
DEV := active.dev
BIN :=
else ifneq ($(VENV),)
$(error VENV=$(VENV): take VENV=none, which uses the active Python, or leave it out)
endif
LAUNCH = @$(PY) -m tools.run.launch
UNKNOWN := $(firstword $(filter-out $(KNOWN),$(GIVEN)))
ifneq ($(UNKNOWN),)
$(error there is no variable $(UNKNOWN): 'make help-variables' lists them)
endif
# As they were typed: in WHO='$HOME', make would look for a variable H.
$(foreach name,$(GIVEN),$(eval override $(name) := $$(value $(name)))$(eval export $(name)))
# Pages and scripts are UTF-8, whatever the locale says.
export PYTHONUTF8 := 1

.DEFAULT_GOAL := help
.SUFFIXES:
MAKEFLAGS += --no-print-directory

help:
	@echo "Six scripts, one loss curve: parallel training in PyTorch, side by side."
	@echo "Begin with 'make all' and README.md; then 'make ddp' and 04_ddp/README.md."
	@sed -n -e 's/^## \(.*\)/\1/p' -e 's/^\([a-z0-9_ ]*\):.*  ## \(.*\)/\1|\2/p' Makefile | \
	  awk -F'|' '!$$2 { print } $$2 { gsub(" ", ", ", $$1); printf "  make %-14s  %s\n", $$1, $$2 }'
	@echo 'NPROC=4, DATA=data/mnist, ARGS="--hidden 2048" and the like: make help-variables'
help-variables:
	@sed -n 's/^#: \(.*\)/  \1/p' Makefile
	@echo 'Give them to make. Of the shell, OMP_NUM_THREADS, PYTHON and TORCH_INDEX count.'

#: GPUS=0,1     these GPUs, one process each; GPUS=cpu: none. Not given: all that
#:              share a batch, or two processes on a single one, or on the CPU
#: NPROC=4      so many processes; they may share GPUs in ddp, ddp_inference and
#:              resume, and not in the other stages of beyond/
#: EPOCHS=1     passes over the training set
#: DATA=DIR     another MNIST root: DATA=data/mnist is all of it, after make data
#: OUT=DIR      where the results go; all and compare: a folder per stage in it
#: ARGS="..."   further flags of the script: ARGS="--hidden 2048 --lr 0.05"
#:              For resume and sharded_checkpoint: ARGS=--resume continues after
#:              the last epoch that was saved
#: RESTARTS=3   for the same two: when a process dies, start all again from that
#:              epoch, three times at most
#: NNODES=2 NODE_RANK=0 MASTER_ADDR=HOST  on several machines, a command on each;
#:              WAIT=300 seconds for each other, at most
#: QUICK=1      for bench: few and short rounds
#: A=STAGE B=STAGE  for diff; S=STAGE for trace and restore; E=05 for the lab;
#:              FROM=DIR for data, FROM=FILE for room
#: ROSTER=FILE  for room: all names, one a line, to see who is silent
#: LAST=1       for try: the run that the last check has judged, once more
#: SCRIPT=train.py  for inspect; NPROC=3 ranks, ARGS="..." its flags
#: TRACK=half_day  or day, transformer: for exercise, then the next; handouts
#: WHO=Ada      for check, doctor, exercises: your name for the instructor
#: OMP_NUM_THREADS=4  threads of each process; not given: 1
#: PYTHON=...   the Python to make .venv with, 3.10 or newer
#: VENV=none    use the active Python with its PyTorch, and install nothing
#: TORCH_INDEX=URL  another package index for torch and torchvision. Not given:
#:              https://download.pytorch.org/whl/cpu, without GPU support, where
#:              no NVIDIA driver is. TORCH_INDEX=default: with GPU support
#: WHEELHOUSE=DIR  for setup: all packages from there, without a network
#: ALL=1        for test: the slow tests too, which take long or are many alike
#: CHECK=1      for docs: changes nothing, and fails if anything is stale
#: U=--upgrade  for lock
#: TORCH=2.9.1  for compat: the other version of PyTorch

## The six stages
all: $(STAGES)  ## the six in order, then compare
	$(LAUNCH) $@
	@$(PY) -m tools.run.compare "$${OUT:-runs}"
	@[ "$$DATA" ] || echo "For all of MNIST instead of 5,000 digits: make data, then make all DATA=data/mnist"
cpu: $(STAGES)  ## stage 1: one process on the CPU
	$(LAUNCH) $@
single_gpu: $(STAGES)  ## stage 2: on one GPU; the diff from stage 1
	$(LAUNCH) $@
dp: $(STAGES)  ## stage 3: nn.DataParallel; the diff from stage 2
	$(LAUNCH) $@
ddp: $(STAGES)  ## stage 4: DistributedDataParallel; the diff from stage 3
	$(LAUNCH) $@
ddp_inference: $(STAGES)  ## stage 5: evaluation on every rank; the diff from stage 4
	$(LAUNCH) $@
model_parallel: $(STAGES)  ## stage 6: a model on two GPUs; the diff from stage 2
	$(LAUNCH) $@
compare: $(STAGES)  ## are the curves equal? a table, and runs/curves.png
	@$(PY) -m tools.run.compare "$${OUT:-runs}"
diff: $(STAGES)  ## any two stages, in the terminal: A=02_single_gpu B=04_ddp
	@$(PY) -m tools.run.diffs "$$A" "$$B"
side_by_side: $(STAGES)  ## each stage beside the one before it, in the browser
	@$(PY) -m tools.pages.side_by_side
playground: $(STAGES)  ## stage 4 trains in the browser, with switches
	@$(PY) -m tools.site.playground

## When the model is too large
beyond: $(STAGES)  ## the six stages in beyond/, then compare
	$(LAUNCH) $@
	@$(PY) -m tools.run.compare "$${OUT:-runs}"
fsdp tensor_parallel pipeline hybrid: $(STAGES)  ## stages 7 to 10
	$(LAUNCH) $@
resume sharded_checkpoint: $(STAGES)  ## 11 and 12: continue a killed run
	$(LAUNCH) $@

## The second curve: a small transformer that copies
transformer: $(STAGES)  ## the eight stages in transformer/, then compare
	$(LAUNCH) $@
	@$(PY) -m tools.run.compare "$${OUT:-runs}"
gpt data_parallel sequence_parallel pipeline_1f1b: $(STAGES)  ## stages 13 to 16
	$(LAUNCH) $@
context_parallel moe expert_parallel grid: $(STAGES)  ## stages 17 to 20
	$(LAUNCH) $@

## The break-it lab: scripts with one mistake each, to be found
exercises: $(STAGES)  ## the path through them, and how far you are
	@$(PY) -m tools.lab.commands list "" "$$WHO"
exercise: $(STAGES)  ## begin one, in workshop/: E=05; without E the next
	@$(PY) -m tools.lab.commands begin "$$E" "$$TRACK"
try: $(STAGES)  ## run your version, beside a right one
	@$(PY) -m tools.lab.commands try "$$E" "$$LAST"
check watch: $(STAGES)  ## is it solved? what is wrong? once; at each save
check:
	@$(PY) -m tools.lab.commands check "$$E" "$$WHO" || [ $$? = 3 ]
watch:
	@$(PY) -m tools.lab.watch "$$E"
hint solution: $(STAGES)  ## the next hint; the diff that solves it: E=05
	@$(PY) -m tools.lab.commands $@ "$$E"
reset restore: $(STAGES)  ## drop your version of an exercise, E=05; of a stage, S=4
reset:
	@$(PY) -m tools.lab.commands reset "$$E"
restore:
	@$(PY) -m tools.lab.commands restore "$$S"
handouts room: $(STAGES)  ## for instructors: to print; who is where, FROM=FILE
room:
	@$(PY) -m tools.lab.commands room "$$FROM" "$$ROSTER"
handouts:
	@$(PY) -m tools.pages.handouts "$${TRACK:-half_day}"

## A closer look
inspect: $(STAGES)  ## known silent mistakes in your own script, SCRIPT=train.py
	@[ "$$SCRIPT" ] || { echo "which script? make inspect SCRIPT=train.py" >&2; exit 1; }
	@$(PY) -m onecurve --pages=tools/run/explained.csv --ranks "$${NPROC:-2}" "$$SCRIPT" $(ARGS)
notebooks: $(NOTEBOOKS)  ## the companion notebooks, copied into workshop/
	@mkdir -p workshop
	@for name in $(notdir $(wildcard notebooks/[0-9]*.ipynb)); do \
	  if [ -e workshop/$$name ]; then echo "workshop/$$name is as you left it"; \
	  else cp notebooks/$$name workshop/$$name || exit 1; fi; \
	done
	@exec $(PY) -m jupyterlab --ServerApp.root_dir="$$PWD" --allow-root \
	  --LabApp.default_url=/lab/tree/workshop $(ARGS)
bench: $(STAGES)  ## how fast, and why: measures this machine for minutes
	@$(PY) -m tools.bench.benchmark
trace memory: $(STAGES)  ## what each rank does, and when, S=07_fsdp; what it holds
trace:
	@$(PY) -m tools.bench.timeline "$$S"
memory:
	@$(PY) -m tools.bench.held

## This machine
setup: $(NOTEBOOKS)  ## all that a workshop needs, into .venv, at once
doctor:  ## is it ready? what works, and what to do
	@$(MAKE) -s $(STAGES) || { who=$$(printf %s "$$WHO" | tr ' ' _); \
	  printf '%s: not ready: %s\n' "$${who:-$${USER:-$$(id -u)}@$$(uname -n)}" \
	  "$(if $(VENV),packages,no .venv)"; exit 1; }
	@$(PY) -m tools.run.doctor "$$WHO"
data: $(STAGES)  ## all of MNIST, into data/mnist; FROM=DIR: from .gz files
	@$(PY) -m tools.run.data "$$FROM"
wheelhouse: $(STAGES)  ## the packages of setup, for machines without a network
	@$(PY) -m tools.run.install wheelhouse

## For those who change something: CONTRIBUTING.md
test: $(DEV)  ## the tests, on GPUs too where there are some
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadgroup
site: $(DEV)  ## the pages and notebooks as a web site, in _site/
	@$(BIN)sphinx-build -W --keep-going -q -c tools/site -d _doctrees . _site
	@echo "file://$$PWD/_site/index.html"
lint docs outcomes lock mutants compat: $(DEV)  ## see CONTRIBUTING.md
lint:
	@$(BIN)ruff check . && $(BIN)ruff format --check .
	@$(BIN)lint-imports --no-logo --no-cache
	@cd onecurve && ../$(BIN)lint-imports --no-logo --no-cache
	@$(BIN)shellcheck tools/run/slurm.sh tests/cluster/up.sh .ci/run
	@$(PY) tools/limits.py
	@$(PY) -m tools.pages.blocks --check
	@$(PY) -m tools.pages.stored --check
docs:
ifeq ($(CHECK),)
	@$(PY) -m tools.pages.upstream >/dev/null
	@$(PY) -m tools.pages.blocks
	@$(PY) -m tools.pages.pictures
	@$(PY) -m tools.pages.stored
else
	@$(PY) -m tools.pages.fresh
endif
outcomes:
	@$(PY) -m tools.pages.outcomes
lock:
	@for size in dev notebooks stages; do $(UV) pip compile -q $$U --universal --python-version 3.10 --no-annotate \
	  --custom-compile-command "make lock" $${constraint:-} pyproject.toml \
	  $$(test $$size = stages || echo --group pyproject.toml:$$size) -o tools/requirements/$$size.txt \
	  && constraint="-c tools/requirements/dev.txt" || exit 1; done
mutants:
	@$(PY) tests/mutants.py
compat:
	$(if $(TORCH),,$(error make compat needs a version, such as TORCH=2.9.1))
	@"$$PYTHON" -m venv ".venv-$$TORCH"
	@".venv-$$TORCH/bin/pip" install -q "torch==$$TORCH" \
	  $$("$$PYTHON" -c "from tools.run.active import needed; print(*needed('stages')[1:])") \
	  && ".venv-$$TORCH/bin/pip" install -q --no-deps ./onecurve
	@$(MAKE) all beyond VENV=none PYTHON=".venv-$$TORCH/bin/python" GPUS=cpu OUT="runs/compat-$$TORCH"
	@".venv-$$TORCH/bin/python" -m tools.pages.upstream

# VENV=none: look at the active Python instead.
active.%:
	@"$$PYTHON" -c "import sys; sys.exit(sys.version_info < (3, 10))" 2>/dev/null || \
	  { echo "$$PYTHON is not Python 3.10 or newer: activate another, or PYTHON=python3.11, say" >&2; exit 1; }
	@$(PY) -m tools.run.active $*

# Three sizes of installation, each pinned in tools/requirements/. The larger hold the smaller.
# Where a list is newer than the mark, install.py looks at what there is.
.venv/%.ready: tools/requirements/%.txt $(if $(WHEELHOUSE),.ASKED)
	@for python in $(PY) "$$PYTHON"; do \
	  "$$python" -c "import sys; sys.exit(sys.version_info < (3, 10))" 2>/dev/null && exec "$$python" -m tools.run.install $*; \
	done; echo "$$PYTHON is not Python 3.10 or newer: make PYTHON=python3.11, say" >&2; exit 1
	@touch $@ $(HOLDS_$*)
.ASKED:

TARGETS := $(shell grep -oE '^[a-z][a-z0-9_ -]*:' Makefile | tr -d :)
.PHONY: $(TARGETS)

# `make 04_ddp` would find that folder, and have nothing to do.
NOWHERE := $(firstword $(filter-out $(TARGETS) .venv/% active.%,$(MAKECMDGOALS)))
ifneq ($(NOWHERE),)
NUMBERS := $(shell seq 99) $(shell seq -w 99)
$(error there is no target $(NOWHERE): $(if $(filter $(NUMBERS),$(NOWHERE)),is it E=$(NOWHERE)? ,)'make help' lists them)
endif
