#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The first process of a node, in namespaces of its own: node.sh NAME STATE. STATE is what survives a power failure.
set -euo pipefail
name=$1 state=$2
mount --make-rprivate /
hostname "$name"
mount -t proc proc /proc

# A kubelet writes these, which are the machine's.
mkdir -p "$state/sysctl"
for s in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	file=$state/sysctl/${s//\//.}
	cat "/proc/sys/$s" >"$file"
	mount --bind "$file" "/proc/sys/$s"
done

# The network devices of /sys are those of the namespace that mounts it; the control groups stay.
mkdir -p "$state/cgroup"
mount --rbind /sys/fs/cgroup "$state/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$state/cgroup" /sys/fs/cgroup
umount -l "$state/cgroup"

for d in etc opt usr var; do
	mkdir -p "$state/$d/upper" "$state/$d/work"
	mount -t overlay -o "lowerdir=/$d,upperdir=$state/$d/upper,workdir=$state/$d/work" overlay "/$d"
done
# An overlay can't lie on an overlay, as images' layers would.
for d in containerd kubelet; do
	mkdir -p "$state/$d" "/var/lib/$d"
	mount --bind "$state/$d" "/var/lib/$d"
done
mkdir -p /usr/lib/modules /etc/kubernetes/manifests /var/log/pods /var/log/containers /etc/cni/net.d /opt/cni/bin
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -p /run/lock /run/netns
mount --make-rshared /
: >/run/booted
while :; do
	sleep infinity &
	wait || true
done
