#!/usr/bin/env bash
# Run a stage on several nodes of a Slurm cluster, from the root of the repository:
#
#     sbatch tools/run/slurm.sh 04_ddp --epochs 3
#
# The first word is the stage, any that torchrun starts. The words after it go to the
# script. Slurm's own options come before the file name and replace those below. Without
# GPUs: sbatch --gpus-per-node=0 --cpus-per-task=2 tools/run/slurm.sh 04_ddp
# The results go to runs/STAGE, or to runs/NAME with sbatch --job-name=NAME.
# Every node must see this folder, with .venv and the data in it.
#SBATCH --job-name=slurm.sh
#SBATCH --dependency=singleton     # a second job of this name waits for the first
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1        # one torchrun per node; it starts a process per GPU
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=00:30:00
#SBATCH --requeue                  # after a node failure, where the cluster allows it
#SBATCH --output=slurm-%j.out
#SBATCH --open-mode=append         # keeps what a requeued job has printed before
# If your cluster asks for these, remove one # from each line:
##SBATCH --partition=NAME
##SBATCH --account=NAME

set -euo pipefail
refuse() { echo "slurm.sh: $*" >&2; exit 1; }

[[ -f 04_ddp/mnist.py ]] || refuse "$PWD is not the root of the repository: sbatch there"
stage=${1:-}
stage=${stage#beyond/}
stage=${stage%/}
for script in "$stage/mnist.py" "beyond/$stage/mnist.py" ""; do
  [[ ! -f $script ]] || break
done
[[ -n $stage && -n $script ]] ||
  refuse "name a stage first, such as: sbatch tools/run/slurm.sh 04_ddp --epochs 3"
shift
grep -q torch.distributed "$script" || refuse "$stage runs on one machine: take 04_ddp, say"
((SLURM_NTASKS == SLURM_NNODES)) ||
  refuse "$SLURM_NTASKS tasks on $SLURM_NNODES nodes: --ntasks-per-node=1, a torchrun each"
[[ " $*" != *" --o"* ]] ||
  refuse "--out is the job's name: sbatch --job-name=NAME tools/run/slurm.sh $stage"
[[ -z ${SLURM_ARRAY_JOB_ID:-} || " $* " == *" --resume "* ]] ||
  refuse "an --array continues one run: take 11_resume, with --resume at the end"
resumes=
grep -q '"--resume"' "$script" && resumes=yes
[[ -n $resumes || " $*" != *" --resume"* ]] ||
  refuse "$stage does not save its state: take 11_resume"

data=data/sample
[[ ! " $* " =~ " --data"[=\ ]([^\ ]+) ]] || data=${BASH_REMATCH[1]}

# In single quotes, here and below: for bash on each node.
# shellcheck disable=SC2016
lacks=$(srun bash -c 'for file in .venv/bin/torchrun "$1" "$0/MNIST"; do
  [[ -e $file ]] || echo "$SLURMD_NODENAME lacks $file"; done' "$data" "$script" | sort)
[[ -z $lacks ]] || refuse "${lacks//$'\n'/, } in $PWD: each node needs all of it"

# When Slurm starts a job again, it continues if the stage can. A new job puts what an
# earlier run left into before/, so that nobody mistakes it for its own.
out=runs/$SLURM_JOB_NAME
[[ $SLURM_JOB_NAME != slurm.sh ]] || out=runs/$stage
[[ -z $resumes ]] || ((${SLURM_RESTART_COUNT:-0} == 0)) || set -- "$@" --resume
mkdir -p "$out/before"
if [[ " $* " != *" --resume "* ]] && ((${SLURM_RESTART_COUNT:-0} == 0)); then
  for name in metrics.csv model.pth state.pth checkpoints flags.json; do
    [[ -e $out/$name ]] || continue
    rm -rf "$out/before/$name"
    mv "$out/$name" "$out/before"
  done
fi
touch "$out/unfinished"  # until the run ends well: make compare reads it

# One process per GPU, or two on the CPU. SLURM_GPUS_ON_NODE is set where there are GPUs.
processes=${SLURM_GPUS_ON_NODE:-2}

# The other nodes connect to the first one. The port must be free there, so it follows
# from the job's number: two jobs on one node take two ports.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${hosts%%$'\n'*}
port=$((20000 + SLURM_JOB_ID % 10000))

cpus=${SLURM_CPUS_PER_TASK:-$processes}
export SRUN_CPUS_PER_TASK=$cpus  # since Slurm 22.05, srun does not take it from sbatch
export OMP_NUM_THREADS=$((cpus < processes ? 1 : cpus / processes))

# If the nodes do not find each other, name the network between them, as `ip addr` does:
# export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0

# If a task fails, srun ends the others, which it would not do by default.
export head port processes script
# shellcheck disable=SC2016
srun --kill-on-bad-exit=1 bash -c 'exec .venv/bin/torchrun --nnodes="$SLURM_NNODES" \
  --node-rank="$SLURM_NODEID" --nproc-per-node="$processes" \
  --master-addr="$head" --master-port="$port" "$script" "$@"' \
  bash --data "$data" --out "$out" "$@"
rm -f "$out/unfinished"
