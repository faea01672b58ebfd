#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes sure of the programs that tests and the documents' commands run; the arguments say which tests: test, smoke or
# e2e. On Debian and Ubuntu, as root, it installs what is missing. Elsewhere it builds etcdctl into bin/tools, and fails with the names
# of the packages that have the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/bin/tools:$PATH:/usr/sbin:/sbin" DEBIAN_FRONTEND=noninteractive

# tests, program, Debian's package, Fedora's package
programs='test ip iproute2 iproute
test nft nftables nftables
test conntrack conntrack conntrack-tools
test etcdctl etcd-client etcd
test curl curl curl
test jq jq jq
test busybox busybox-static busybox
test sysctl procps procps-ng
test unshare util-linux util-linux
test iptables iptables iptables-nft
test python3-zmq python3-zmq python3-pyzmq
smoke containerd containerd containerd
smoke runc runc runc
smoke bird bird2 bird
smoke dhclient isc-dhcp-client dhcp-client
smoke dhcpcd dhcpcd-base dhcpcd
e2e vtysh frr frr
e2e ipset ipset ipset
e2e qemu-system-x86_64 qemu-system-x86 qemu-system-x86'
case " $* " in *' e2e '*) set -- "$@" smoke ;; esac
programs=$(for t in "$@"; do sed -n "s/^$t //p" <<<"$programs"; done)

# has says whether a program is in PATH; python3-zmq is a module.
has() {
	case $1 in
	python3-zmq) /usr/bin/python3 -c 'import zmq' 2>/dev/null ;;
	*) command -v "$1" >/dev/null ;;
	esac
}

# missing prints one column of the programs that are not there.
missing() {
	while read -r program debian fedora; do
		has "$program" || case $1 in
		program) echo "$program" ;;
		debian) echo "$debian" ;;
		*) echo "$program ($debian on Debian, $fedora on Fedora)" ;;
		esac
	done <<<"$programs"
}

packages=$(missing debian | xargs)
if [ -n "$packages" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing what tests need: apt-get install $packages"
	# shellcheck disable=SC2086 # several words
	{ apt-get update -qq && apt-get install -qq -y --no-install-recommends $packages; } </dev/null >/dev/null || true
fi
if missing program | grep -qx etcdctl; then
	echo 'building etcdctl from its Go module into bin/tools'
	CGO_ENABLED=0 "${GO:-go}" build -C tools -trimpath -buildvcs=false -ldflags '-s -w' -o ../bin/tools/ go.etcd.io/etcd/etcdctl/v3
fi
if [ -n "$(missing program)" ]; then
	echo 'tests need programs that are missing here; install these packages:' >&2
	missing all | sed 's/^/  /' >&2
	exit 1
fi

# What all of them need of the kernel.
user=
[ "$(id -u)" = 0 ] || user=--map-root-user
while IFS=: read -r feature command; do
	# shellcheck disable=SC2086 # none or one
	if ! out=$(unshare --net $user sh -c "$command" 2>&1); then
		echo "tests need $feature, which is not to be had here ($out): be root or allow user namespaces (sysctl user.max_user_namespaces), on a kernel that has it" >&2
		exit 1
	fi
done <<'END'
network namespaces:true
veth:ip link add v type veth peer name w
bridges:ip link add br0 type bridge
macvlan:ip link add v type veth peer name w && ip link add mv0 link v type macvlan
taps:ip tuntap add tap0 mode tap
token buckets:tc qdisc add dev lo root tbf rate 1mbit burst 10k latency 10ms
VXLAN:ip link add x type vxlan id 1 dstport 4789
nftables:nft add table inet t
END
