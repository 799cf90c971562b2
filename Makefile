# Six scripts, one loss curve. `make` prints what there is.

PYTHON ?= python3
TORCH_INDEX ?=
PY := .venv/bin/python
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
#:              or two CPU processes
#: NPROC=3      so many processes for ddp and ddp_inference; they share the GPUs
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
#:              IMAGES=1280000
#: PYTHON=...   the Python to make .venv with, 3.10 or newer
#: TORCH_INDEX=URL  another package index for torch and torchvision, such as
#:              https://download.pytorch.org/whl/cpu: small, without GPU support

all: .venv/ready  ## the six stages in order, then compare
	@$(PY) -m tools.launch all
	@$(PY) -m tools.compare "$(or $(OUT),runs)"

cpu: .venv/ready  ## stage 1: one process on the CPU
	@$(PY) -m tools.launch 01_cpu
single_gpu: .venv/ready  ## stage 2: on one GPU, and the diff from stage 1
	@$(PY) -m tools.launch 02_single_gpu
dp: .venv/ready  ## stage 3: nn.DataParallel, and the diff from stage 2
	@$(PY) -m tools.launch 03_dp
ddp: .venv/ready  ## stage 4: DistributedDataParallel, and the diff from stage 3
	@$(PY) -m tools.launch 04_ddp
ddp_inference: .venv/ready  ## stage 5: evaluation on every rank, and the diff from stage 4
	@$(PY) -m tools.launch 05_ddp_inference
model_parallel: .venv/ready  ## stage 6: a model on two GPUs, and the diff from stage 5
	@$(PY) -m tools.launch 06_model_parallel

diff: .venv/ready  ## any two stages: make diff A=02_single_gpu B=04_ddp
	@$(PY) -m tools.diffs "$(A)" "$(B)"
side_by_side: .venv/ready  ## any two stages in the browser: one HTML file, to be opened from disk
	@$(PY) -m tools.side_by_side
notebooks: .venv/ready  ## the companion notebooks, in JupyterLab
	@$(PY) -m jupyterlab notebooks
bench: .venv/ready  ## how fast, and why: measures this machine for some minutes, and draws it
	@$(PY) -m tools.bench
trace: .venv/ready  ## a timeline of each device or process: stages 3 to 6, or S=04_ddp
	@$(PY) -m tools.trace "$(S)"
predict: .venv/ready  ## training on many GPUs, by a model: NODES=4 GPUS_PER_NODE=8
	@$(PY) -m tools.predict
exercises: .venv/ready  ## the break-it lab: scripts with one mistake each, to be found
	@$(PY) -m tools.lab list
exercise: .venv/ready  ## begin one, in workshop/: make exercise E=04
	@$(PY) -m tools.lab begin "$(E)"
check: .venv/ready  ## is it solved? what is still wrong?  E=04
	@$(PY) -m tools.lab check "$(E)"
hint: .venv/ready  ## the next of its three hints: E=04
	@$(PY) -m tools.lab hint "$(E)"
solution: .venv/ready  ## the diff that solves it: E=04
	@$(PY) -m tools.lab solution "$(E)"
reset: .venv/ready  ## throw your version away: E=04
	@$(PY) -m tools.lab reset "$(E)"
compare: .venv/ready  ## the results side by side; are the curves equal? draws runs/curves.png
	@$(PY) -m tools.compare "$(or $(OUT),runs)"
data: .venv/ready  ## fetch MNIST; FROM=DIR takes the four official .gz files from there
	@$(PY) -m tools.data "$(FROM)"

doctor: .venv/ready  ## is this machine ready? a table of what works and what to do
	@$(PY) -m tools.doctor
setup: .venv/ready  ## make .venv (every other target does it when needed)
test: .venv/ready  ## the tests, on the CPU
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile
mutants: .venv/ready  ## bugs put into scripts and tools, one at a time: do the tests catch them?
	@$(PY) tests/mutants.py
lint: .venv/ready  ## ruff
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .
docs: .venv/ready  ## write the generated parts of the pages, and the notebooks, anew
	@$(PY) -m tools.docs
	@$(PY) -m tools.notebooks

.venv/ready: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	  echo "$(PYTHON) is not Python 3.10 or newer: make PYTHON=python3.11, say" >&2; exit 1; }
	@echo "Making .venv with $(PYTHON): downloads about $(if $(TORCH_INDEX),0.3 GB with the CPU wheels (3 GB otherwise),3 GB on Linux). Once."
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
	  echo "$(PYTHON) cannot make .venv: install its venv module (Debian: python3-venv)" >&2; exit 1; }
	@$(if $(TORCH_INDEX),grep '^torch' requirements.txt >.venv/torch.txt && \
	  .venv/bin/python -m pip install --disable-pip-version-check -q --index-url "$(TORCH_INDEX)" -r .venv/torch.txt || { \
	  echo "$(TORCH_INDEX) has not what requirements.txt asks for" >&2; exit 1; })
	@.venv/bin/python -m pip install --disable-pip-version-check -q -r requirements.txt || { \
	  echo "pip could not install requirements.txt: see above, then the same command again" >&2; exit 1; }
	@touch $@

.PHONY: help all cpu single_gpu dp ddp ddp_inference model_parallel diff \
  side_by_side notebooks exercises exercise check hint solution reset compare data \
  bench trace predict \
  doctor setup test mutants lint docs
