#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes sure of the programs that tests and the documents' commands run. On Debian and Ubuntu, as root, it installs what
# is missing. Elsewhere it builds etcdctl into bin/tools, and fails with the names of the packages that have the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/bin/tools:$PATH:/usr/sbin:/sbin" DEBIAN_FRONTEND=noninteractive

# program, Debian's package, Fedora's package
programs='ip iproute2 iproute
nft nftables nftables
conntrack conntrack conntrack-tools
etcdctl etcd-client etcd
curl curl curl
jq jq jq
busybox busybox-static busybox
sysctl procps procps-ng'

# missing prints one column of the programs that are not in PATH.
missing() {
	while read -r program debian fedora; do
		command -v "$program" >/dev/null || case $1 in
		program) echo "$program" ;;
		debian) echo "$debian" ;;
		*) echo "$program ($debian on Debian, $fedora on Fedora)" ;;
		esac
	done <<<"$programs"
}

packages=$(missing debian | xargs)
if [ -n "$packages" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "test: installing what tests need: apt-get install $packages"
	# shellcheck disable=SC2086 # several words
	{ apt-get update -qq && apt-get install -qq -y --no-install-recommends $packages; } </dev/null >/dev/null || true
fi
if missing program | grep -qx etcdctl; then
	echo 'test: building etcdctl from its Go module into bin/tools'
	CGO_ENABLED=0 "${GO:-go}" build -C tools -trimpath -buildvcs=false -ldflags '-s -w' -o ../bin/tools/ go.etcd.io/etcd/etcdctl/v3
fi
if [ -n "$(missing program)" ]; then
	echo 'test: tests need programs that are missing here; install these packages:' >&2
	missing all | sed 's/^/  /' >&2
	exit 1
fi
