#!/usr/bin/env bash
# Stage 04 on several nodes of a Slurm cluster, from the root of the repository:
#
#     sbatch 04_ddp/slurm.sh --epochs 3
#
# What follows the file name goes to the script. Change the lines below to what your
# cluster has; every node must see this folder, with .venv and the data in it.
#SBATCH --job-name=ddp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1        # one torchrun a node; it starts a process per GPU
#SBATCH --gpus-per-node=4          # without GPUs: take this line out
#SBATCH --cpus-per-task=16
#SBATCH --time=00:30:00
#SBATCH --output=slurm-%j.out

set -euo pipefail

# One process per GPU, or two on the CPU. SLURM_GPUS_ON_NODE is set where there are GPUs.
processes=${SLURM_GPUS_ON_NODE:-2}

# The first node of the job is where the others meet. The port must be free there: it is
# taken from the job's number, so that two jobs on one node do not meet each other.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${hosts%%$'\n'*}
port=$((20000 + SLURM_JOB_ID % 10000))

export OMP_NUM_THREADS=$((${SLURM_CPUS_PER_TASK:-$processes} / processes))
if ((OMP_NUM_THREADS < 1)); then OMP_NUM_THREADS=1; fi

# If the nodes do not find each other, name the network between them, as `ip addr` does:
# export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0

# In single quotes, since each node has a SLURM_NODEID of its own.
export head port processes
# shellcheck disable=SC2016
srun bash -c 'exec .venv/bin/torchrun --nnodes="$SLURM_NNODES" \
  --node-rank="$SLURM_NODEID" --nproc-per-node="$processes" \
  --master-addr="$head" --master-port="$port" 04_ddp/mnist.py "$@"' bash "$@"
