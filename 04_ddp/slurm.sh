#!/usr/bin/env bash
# Stage 04 on several nodes of a Slurm cluster, from the root of the repository:
#
#     sbatch 04_ddp/slurm.sh --epochs 3
#
# What follows the file name goes to the script; options of Slurm stand before it, in place
# of those below. Without GPUs: sbatch --gpus-per-node=0 --cpus-per-task=2 04_ddp/slurm.sh.
# Every node must see this folder, with .venv and the data in it.
#SBATCH --job-name=04_ddp          # the results go to runs/04_ddp
#SBATCH --dependency=singleton     # a second job of this name waits for the first
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1        # one torchrun a node; it starts a process per GPU
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=00:30:00
#SBATCH --requeue                  # after a node failure, where the cluster allows it
#SBATCH --output=slurm-%j.out
#SBATCH --open-mode=append         # what a requeued job has printed stays
# If your cluster asks for these, take away one # of each:
##SBATCH --partition=NAME
##SBATCH --account=NAME

set -euo pipefail
refuse() { echo "slurm.sh: $*" >&2; exit 1; }

[[ -f 04_ddp/mnist.py ]] || refuse "$PWD is not the root of the repository: sbatch there"
((SLURM_NTASKS == SLURM_NNODES)) ||
  refuse "$SLURM_NTASKS tasks on $SLURM_NNODES nodes: --ntasks-per-node=1, a torchrun each"
[[ " $*" != *" --o"* ]] ||
  refuse "--out is the job's name: sbatch --job-name=NAME 04_ddp/slurm.sh writes to runs/NAME"

# One choice of data for all nodes.
data=data/mnist
if [[ " $* " =~ " --data"[=\ ]([^\ ]+) ]]; then
  data=${BASH_REMATCH[1]}
elif [[ ! -d $data/MNIST ]]; then
  data=data/sample
  echo "no MNIST in data/mnist ('make data' fetches it): this run takes $data"
fi

# In single quotes, here and below: for bash on each node.
# shellcheck disable=SC2016
lacks=$(srun bash -c 'for file in .venv/bin/torchrun 04_ddp/mnist.py "$0/MNIST"; do
  [[ -e $file ]] || echo "$SLURMD_NODENAME lacks $file"; done' "$data" | sort)
[[ -z $lacks ]] || refuse "${lacks//$'\n'/, } in $PWD: each node needs all of it"

# A job that Slurm starts again goes on; a new one sets an earlier run's state aside, lest
# it go on from there.
out=runs/$SLURM_JOB_NAME
if ((${SLURM_RESTART_COUNT:-0})); then
  set -- "$@" --resume
elif [[ " $* " != *" --resume "* && -e $out/state.pth ]]; then
  mv "$out/state.pth" "$out/state.before.pth"
fi

# One process per GPU, or two on the CPU. SLURM_GPUS_ON_NODE is set where there are GPUs.
processes=${SLURM_GPUS_ON_NODE:-2}

# The first node of the job is where the others meet. The port must be free there: it is
# taken from the job's number, so that two jobs on one node do not meet each other.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${hosts%%$'\n'*}
port=$((20000 + SLURM_JOB_ID % 10000))

cpus=${SLURM_CPUS_PER_TASK:-$processes}
export SRUN_CPUS_PER_TASK=$cpus  # srun no longer takes it from sbatch, since Slurm 22.05
export OMP_NUM_THREADS=$((cpus < processes ? 1 : cpus / processes))

# If the nodes do not find each other, name the network between them, as `ip addr` does:
# export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0

# A task that fails ends the others: else they would wait for it.
export head port processes
# shellcheck disable=SC2016
srun --kill-on-bad-exit=1 bash -c 'exec .venv/bin/torchrun --nnodes="$SLURM_NNODES" \
  --node-rank="$SLURM_NODEID" --nproc-per-node="$processes" \
  --master-addr="$head" --master-port="$port" 04_ddp/mnist.py "$@"' \
  bash --data "$data" --out "$out" "$@"
