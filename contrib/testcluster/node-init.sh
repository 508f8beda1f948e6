#!/bin/bash
# PID 1 of one node: node-init.sh NODE IP GATEWAY GPUS ROOT CGROUP PRIVATE_DIR...
# The node gets its own host name, cgroups, /dev with GPU device files, /run, boot id and private folders, then waits
# for its end.
set -e
node=$1 ip=$2 gateway=$3 gpus=$4 root=$5 cgroup=$6
shift 6
dir=$root/nodes/$node
hostname "$node"
mount --make-rprivate /
for controller in freezer devices; do
    own=/sys/fs/cgroup/$controller/$cgroup
    [ ! -d "$own" ] || mount --bind "$own" "/sys/fs/cgroup/$controller"
done
mount --bind "$root/etc/hosts" /etc/hosts
[ ! -e /etc/resolv.conf ] || mount --bind /dev/null /etc/resolv.conf # slurmd 24.11 waits for a silent name server
mkdir -p "$dir/dev"
mount -t tmpfs -o mode=755,dev tmpfs "$dir/dev"
for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 nvidiactl:195:255; do
    IFS=: read -r name major minor <<<"$device"
    mknod -m 666 "$dir/dev/$name" c "$major" "$minor"
done
for ((i = 0; i < gpus; i++)); do mknod -m 666 "$dir/dev/nvidia$i" c 195 "$i"; done
mkdir "$dir/dev/pts" "$dir/dev/shm"
mount --bind /dev/pts "$dir/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$dir/dev/shm"
ln -s pts/ptmx "$dir/dev/ptmx"
ln -s /proc/self/fd "$dir/dev/fd"
for pair in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${pair%%:*}" "$dir/dev/${pair#*:}"; done
mount --rbind "$dir/dev" /dev
mount -t tmpfs -o mode=755 tmpfs /run
cat /proc/sys/kernel/random/uuid >"$dir/boot_id"
mount --bind "$dir/boot_id" /proc/sys/kernel/random/boot_id
for private; do
    mkdir -p "$dir/private$private" "$private"
    mount --bind "$dir/private$private" "$private"
done
for ((i = 0; i < 200; i++)); do ip link show eth0 >/dev/null 2>&1 && break; sleep 0.05; done
ip link set lo up
ip addr add "$ip/24" dev eth0
ip link set eth0 up
ip route add default via "$gateway"
: >"$dir/ready"
trap 'exit 0' TERM
while :; do sleep 3600 & wait $! || :; done # also reaps orphans
