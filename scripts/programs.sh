#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails where a program is missing that the tests look at the kernel with, or follow the documents with, and says how to get it.
set -euo pipefail
missing=()
for need in ip:iproute2 nft:nftables conntrack:conntrack etcdctl:etcd-client curl:curl jq:jq sysctl:procps; do
	PATH="$PATH:/usr/sbin:/sbin" command -v "${need%%:*}" >/dev/null || missing+=("${need##*:}")
done
if [ "${#missing[@]}" -gt 0 ]; then
	echo "test: programs are missing that the tests need. On Debian: apt-get install --no-install-recommends ${missing[*]}" >&2
	exit 1
fi
