# Six scripts, one loss curve. `make` prints what there is.

PYTHON ?= python3
# What was chosen once holds for the larger sizes too.
TORCH_INDEX ?= $(shell cat .venv/torch-index 2>/dev/null)
PY := .venv/bin/python
UV := uv==0.13.9
INSTALL := .venv/bin/uv pip install -q --compile-bytecode --python .venv
# uv does not read what pip was told of another index.
INDEX := index=$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-`$(PY) -m pip config get global.index-url 2>/dev/null`}}
# what a target needs: the stages, compare and the lab; notebooks too; the tests too
STAGES := .venv/stages.ready
NOTEBOOKS := .venv/notebooks.ready
DEV := .venv/dev.ready
SIZE_stages := the scripts and the lab need
SIZE_notebooks := JupyterLab and the notebooks need
SIZE_dev := the tests need
HOLDS_notebooks := $(STAGES)
HOLDS_dev := $(STAGES) $(NOTEBOOKS)
# Variables of the command line reach the recipes by themselves; `export` would hand on
# empty ones that nobody gave.

.DEFAULT_GOAL := help
.SUFFIXES:
MAKEFLAGS += --no-print-directory

help:  ## this list
	@echo "Six scripts, one loss curve: parallel training in PyTorch, side by side."
	@echo
	@sed -n 's/^\([a-z_]*\):.*  ## \(.*\)/  make \1|\2/p' Makefile | \
	  awk -F'|' '{ printf "%-22s %s\n", $$1, $$2 }'
	@echo
	@sed -n 's/^#: \(.*\)/  \1/p' Makefile

#: GPUS=0,1     these GPUs, one process each; GPUS=cpu: none. Not given: every GPU,
#:              or two processes on a single one, or on the CPU
#: NPROC=3      so many processes for ddp and ddp_inference, which share the GPUs, and
#:              for what is beyond
#: EPOCHS=1     passes over the training set
#: DATA=DIR     another MNIST root, such as DATA=data/sample
#: OUT=DIR      where the results go (for all and compare: a folder per stage in it)
#: BASE=STAGE   show the diff from another stage than the one before
#: ARGS="..."   further flags of the script: ARGS="--hidden 2048 --batch-size 1024"
#:              ARGS=--resume goes on after the last epoch that was saved
#: RESTARTS=3   start ddp or ddp_inference again from there when a process dies
#: NNODES=2 NODE_RANK=0 MASTER_ADDR=HOST  on several machines, one command on each;
#:              MASTER_PORT=29500
#: PEERS=1      for bench: Lightning and Accelerate too; QUICK=1: few and short rounds
#: STEP=0.1 BATCH=128 MB=102  for predict: seconds, images and gradients of a GPU's step;
#:              NETWORK=10 Gbit/s between nodes, INSIDE=300 GB/s in them, OVERLAP=0.5,
#:              IMAGES=1280000; MODE=ddp, fsdp, tp or pp, for these BLOCKS=16
#:              ACTIVATIONS=177 MB between two, MICRO=32 micro-batches
#: PYTHON=...   the Python to make .venv with, 3.10 or newer
#: TORCH_INDEX=URL  another package index for torch and torchvision, such as
#:              https://download.pytorch.org/whl/cpu: small, without GPU support

all: $(STAGES)  ## the six stages in order, then compare
	@$(PY) -m tools.run.launch all
	@$(PY) -m tools.run.compare "$(or $(OUT),runs)"

cpu: $(STAGES)  ## stage 1: one process on the CPU
	@$(PY) -m tools.run.launch 01_cpu
single_gpu: $(STAGES)  ## stage 2: on one GPU, and the diff from stage 1
	@$(PY) -m tools.run.launch 02_single_gpu
dp: $(STAGES)  ## stage 3: nn.DataParallel, and the diff from stage 2
	@$(PY) -m tools.run.launch 03_dp
ddp: $(STAGES)  ## stage 4: DistributedDataParallel, and the diff from stage 3
	@$(PY) -m tools.run.launch 04_ddp
ddp_inference: $(STAGES)  ## stage 5: evaluation on every rank, and the diff from stage 4
	@$(PY) -m tools.run.launch 05_ddp_inference
model_parallel: $(STAGES)  ## stage 6: a model on two GPUs, and the diff from stage 5
	@$(PY) -m tools.run.launch 06_model_parallel

beyond: $(STAGES)  ## the four stages in beyond/, then compare
	@$(PY) -m tools.run.launch beyond
	@$(PY) -m tools.run.compare "$(or $(OUT),runs)"
fsdp: $(STAGES)  ## stage 7: FSDP, and the diff from stage 5
	@$(PY) -m tools.run.launch 07_fsdp
tensor_parallel: $(STAGES)  ## stage 8: tensor parallelism, and the diff from stage 7
	@$(PY) -m tools.run.launch 08_tensor_parallel
pipeline: $(STAGES)  ## stage 9: a pipeline of two halves, and the diff from stage 8
	@$(PY) -m tools.run.launch 09_pipeline
hybrid: $(STAGES)  ## stage 10: FSDP and tensor parallelism, and the diff from stage 7
	@$(PY) -m tools.run.launch 10_hybrid

diff: $(STAGES)  ## any two stages: make diff A=02_single_gpu B=04_ddp
	@$(PY) -m tools.run.diffs "$(A)" "$(B)"
side_by_side: $(STAGES)  ## any two stages in the browser: one HTML file, to be opened from disk
	@$(PY) -m tools.pages.side_by_side
notebooks: $(NOTEBOOKS)  ## the companion notebooks, in JupyterLab: copies, in workshop/
	@$(PY) -m tools.pages.open_notebooks
bench: $(STAGES)  ## how fast, and why: measures this machine for some minutes, and draws it
	@$(PY) -m tools.bench.benchmark
trace: $(STAGES)  ## a timeline of each device or process: stages 3 to 10, or S=04_ddp
	@$(PY) -m tools.bench.timeline "$(S)"
memory: $(STAGES)  ## what each rank of each stage holds, in bytes, and a picture
	@$(PY) -m tools.bench.memory
predict: $(STAGES)  ## training on many GPUs, by a model: NODES=4 GPUS_PER_NODE=8
	@$(PY) -m tools.bench.predict
exercises: $(STAGES)  ## the break-it lab: scripts with one mistake each, to be found
	@$(PY) -m tools.lab.commands list
exercise: $(STAGES)  ## begin one, in workshop/: make exercise E=04
	@$(PY) -m tools.lab.commands begin "$(E)"
check: $(STAGES)  ## is it solved? what is still wrong?  E=04
	@$(PY) -m tools.lab.commands check "$(E)"
hint: $(STAGES)  ## the next of its three hints: E=04
	@$(PY) -m tools.lab.commands hint "$(E)"
solution: $(STAGES)  ## the diff that solves it: E=04
	@$(PY) -m tools.lab.commands solution "$(E)"
reset: $(STAGES)  ## throw your version away: E=04
	@$(PY) -m tools.lab.commands reset "$(E)"
compare: $(STAGES)  ## the results side by side; are the curves equal? draws runs/curves.png
	@$(PY) -m tools.run.compare "$(or $(OUT),runs)"
data: $(STAGES)  ## fetch MNIST; FROM=DIR takes the four official .gz files from there
	@$(PY) -m tools.run.data "$(FROM)"

doctor: $(STAGES)  ## is this machine ready? a table of what works and what to do
	@$(PY) -m tools.run.doctor
setup: $(NOTEBOOKS)  ## what a workshop needs, into .venv; every other target installs what it needs itself
test: $(DEV)  ## the tests, on GPUs too where there are some; SLOW=1: those that take long, too
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile
mutants: $(DEV)  ## bugs put into scripts and tools, one at a time: do the tests catch them?
	@$(PY) tests/mutants.py
lint: $(DEV)  ## ruff
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .
docs: $(NOTEBOOKS)  ## write the generated parts of the pages, and the notebooks, anew
	@$(PY) -m tools.pages.blocks
	@$(PY) -m tools.pages.build_notebooks

# Three sizes of installation, each pinned in requirements/. The larger hold the smaller.
.venv/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	  echo "$(PYTHON) is not Python 3.10 or newer: make PYTHON=python3.11, say" >&2; exit 1; }
	@test -x $(PY) || { echo "Making .venv with $(PYTHON)"; $(PYTHON) -m venv .venv; } || { rm -rf .venv; \
	  echo "$(PYTHON) cannot make .venv: install its venv module (Debian: python3-venv)" >&2; exit 1; }
	@$(PY) -m pip install --disable-pip-version-check -q --no-warn-script-location $(UV) >.venv/pip.log 2>&1 || { \
	  cat .venv/pip.log >&2; echo "pip could not install $(UV): see above, then the same command again" >&2; exit 1; }

.venv/%.ready: requirements/%.txt | .venv/bin/uv
	@echo "Installing what $(SIZE_$*): up to $(if $(TORCH_INDEX),0.4 GB with the CPU wheels,3 GB) to download. Once."
	@$(if $(TORCH_INDEX),echo "$(TORCH_INDEX)" >.venv/torch-index; grep '^torch' $< >.venv/torch.txt; grep -vE '^(torch|nvidia|cuda|triton)' $< >.venv/rest.txt; \
	  $(INSTALL) --index-url "$(TORCH_INDEX)" -r .venv/torch.txt || { \
	  echo "$(TORCH_INDEX) does not have the versions in $<" >&2; exit 1; })
	@$(INDEX); $(INSTALL) $${index:+--default-index "$$index"} -r $(if $(TORCH_INDEX),.venv/rest.txt,$<) || { \
	  echo "could not install $<: see above, then the same command again" >&2; exit 1; }
	@touch $@ $(HOLDS_$*)

lock: .venv/bin/uv  ## pin the packages of pyproject.toml anew; U=--upgrade takes newer ones
	@for size in dev notebooks stages; do .venv/bin/uv pip compile -q $(U) --universal --python-version 3.10 --no-annotate \
	  --custom-compile-command "make lock" $${constraint:-} pyproject.toml \
	  $$(test $$size = stages || echo --group pyproject.toml:$$size) -o requirements/$$size.txt \
	  && constraint="-c requirements/dev.txt" U= || exit 1; done

.PHONY: help all cpu single_gpu dp ddp ddp_inference model_parallel diff \
  beyond fsdp tensor_parallel pipeline hybrid \
  side_by_side notebooks exercises exercise check hint solution reset compare data \
  bench trace memory predict \
  doctor setup test mutants lint docs lock
