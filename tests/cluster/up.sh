#!/usr/bin/env bash
# Two nodes of a Slurm cluster, n0 and n1, in namespaces of their own on one machine:
#
#     unshare --mount --uts --net --pid --fork --kill-child --mount-proc up.sh FOLDER
#
# Real daemons, and a network between the nodes; the four GPUs of each are a name only.
# Configuration and logs are in FOLDER. Prints a line when the nodes are idle. When its
# standard input is closed it ends, and with it everything in the namespaces.
set -euo pipefail
folder=$1
export SLURM_CONF=$folder/slurm.conf

# this process is on n0; a shell that sleeps stands for n1
hostname n0
printf '%s\n' '127.0.0.1 localhost' '10.77.0.1 n0' '10.77.0.2 n1' >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
mkfifo "$folder/there"
unshare --mount --uts --net --pid --fork --kill-child --mount-proc \
  bash -c 'hostname n1; echo; exec sleep infinity' >"$folder/there" &
read -r <"$folder/there"
pgrep -P $! >"$folder/n1.init"
n1=$(<"$folder/n1.init")
ip link set lo up
ip link add to1 type veth peer name to0 netns "$n1"
ip addr add 10.77.0.1/24 dev to1
ip link set to1 up
nsenter --target "$n1" --all bash -c \
  'ip link set lo up; ip addr add 10.77.0.2/24 dev to0; ip link set to0 up'

# munge proves to the daemons who calls; all of them reach its socket in FOLDER
head -c 1024 /dev/urandom >"$folder/key"
chmod 600 "$folder/key"
munged --force --key-file="$folder/key" --socket="$folder/munge" \
  --pid-file="$folder/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/seed"
cat >"$SLURM_CONF" <<END
ClusterName=two
SlurmctldHost=n0
SlurmUser=root
AuthInfo=socket=$folder/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdPidFile=$folder/%n.pid
SlurmdLogFile=$folder/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdParameters=config_overrides
SlurmdTimeout=3
KillWait=1
ReturnToService=2
GresTypes=gpu
NodeName=n[0-1] CPUs=64 Gres=gpu:4
PartitionName=all Nodes=ALL Default=YES
END
echo "Name=gpu File=$folder/gpu[0-3]" >"$folder/gres.conf"
for gpu in "$folder"/gpu{0..3}; do mknod "$gpu" c 1 3; done
mkdir "$folder"/{state,n0,n1}
cd /
slurmctld
slurmd
nsenter --target "$n1" --all slurmd
until [[ $(sinfo --noheader --states=idle --format=%D) == 2 ]]; do sleep 0.05; done
echo "two nodes are idle"
cat >/dev/null
