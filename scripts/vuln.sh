#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Looks for known vulnerabilities, if their database can be reached. SOAK=1 fails where that has not been so for seven days. Run by `make vuln`.
set -uo pipefail
cd "$(dirname "$0")/.."
reached=${XDG_CACHE_HOME:-$HOME/.cache}/calico-vuln-reached
mkdir -p "${reached%/*}"
out=$(timeout 300 bin/tools/govulncheck ./... 2>&1)
case $?:$out in
0:*) touch "$reached" ;;
*'fetching vulnerabilities'*)
	[ -e "$reached" ] || touch "$reached" # the first time that is counted from
	echo "govulncheck: its database cannot be reached from here; not checked since $(date -r "$reached" -u +%F)"
	[ -z "${SOAK:-}" ] || [ -z "$(find "$reached" -mtime +6)" ]
	exit
	;;
*) touch "$reached"; printf '%s\n' "$out"; exit 1 ;;
esac
printf '%s\n' "$out"
