#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything, whole, part after part, on after a failure; the arguments name parts. Logs and results are in bin/soak. RESUME=1 goes on where
# the last run of this commit was: it leaves out what has passed. Run by `make soak`.
set -uo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go} dir=bin/soak
alone=(routing chaos firewall differential lab nsm classic)
parts=(unit "${alone[@]}" pages e2e e2e-k8s e2e-vm fuzz images vuln)
[ $# -gt 0 ] || set -- "${parts[@]}"
for p in "$@"; do
	case " ${parts[*]} " in *" $p "*) ;; *) echo "soak: there is no part $p; there are: ${parts[*]}" >&2; exit 2 ;; esac
done
trap 'exit 130' INT TERM # without a result of the part that runs
unset RERUN # what fails once has failed
mkdir -p "$dir"
commit=$(git describe --always --dirty --exclude '*' 2>/dev/null || echo none)
for p in "$@"; do
	[ -n "${RESUME:-}" ] && grep -qs " passed $commit\$" "$dir/$p.result" || rm -f "$dir/$p".*
done
needs=test
case " $* " in *' e2e'*) needs='test e2e' ;; esac
# shellcheck disable=SC2086 # several words
GO="$go" scripts/programs.sh $needs || exit

run() {
	case $1 in
	unit) make test FULL=1 PKG="$("$go" list ./... | grep -vE "/(test/($(IFS='|'; echo "${alone[*]}"))|pkg/lab)\$|/cmd/calico-lab\$" | xargs)" ;;
	pages) make test FULL=1 PKG=./cmd/calico-lab ;;
	e2e-k8s) NETPOL=. make e2e-k8s ;;
	lab) make test FULL=1 PKG=./pkg/lab ;;
	e2e | e2e-vm | fuzz) make "$1" ;;
	images) scripts/reproduce.sh ;;
	vuln) SOAK=1 make vuln ;;
	*) make test FULL=1 PKG="./test/$1" ;;
	esac
}

# counts prints how many tests a part's log tells of, and how many of them failed.
counts() {
	case $1 in
	fuzz) echo "$(grep -c '^fuzz: [^ ]* Fuzz' "$2") $(grep -c '^fuzz: Fuzz.*: failed' "$2")" ;;
	e2e-vm) echo "$(grep -cE -- '--- (PASS|FAIL)' "$2") $(grep -c -- '--- FAIL' "$2")" ;;
	images) echo "$(grep -c '^sha256:' "$2") $(grep -c '^[<>]' "$2")" ;;
	vuln) echo "$(grep -cE '^(No vulnerabilities found|=== Symbol Results)' "$2") $(grep -c '^Vulnerability #' "$2")" ;; # none where its database can't be reached
	*) awk '$1 == "DONE" { for (i = 2; i < NF; i++) { if ($(i + 1) ~ /^tests?/) n += $i; if ($(i + 1) ~ /^failures?/) f += $i } } END { print n + 0, f + 0 }' "$2" ;;
	esac
}

# left lists what a test that was killed could leave on the machine.
left() {
	{
		find /run/netns -mindepth 1 2>/dev/null
		awk '$5 ~ /calico|netns/ { print "mount " $5 }' /proc/self/mountinfo
		ps -eo pid=,comm= | grep -E ' (calico.*|etcd|bird|zebra|bgpd|containerd.*|kube.*|qemu.*|dhclient|dhcpcd|isolate|gotestsum|.*\.test)$' | sed 's/^ */process /'
	} | sort
}

# Since the first run that is gone on with: one that was interrupted has looked at nothing.
[ -n "${RESUME:-}" ] && [ -e "$dir/before" ] || left >"$dir/before"
for p in "$@"; do
	[ ! -e "$dir/$p.result" ] || continue
	echo "soak: $p: see $dir/$p.log"
	began=$SECONDS verdict=passed
	run "$p" >"$dir/$p.log" 2>&1 </dev/null || verdict=FAILED
	echo "$p $(counts "$p" "$dir/$p.log") $((SECONDS - began)) $verdict $commit" >"$dir/$p.result"
done
leftovers=$(comm -13 "$dir/before" <(left))

status=0
printf '%-14s %8s %8s %8s\n' part tests failed seconds
for p in "$@"; do
	read -r part tests failed seconds verdict _ <"$dir/$p.result"
	printf '%-14s %8d %8d %8d  %s\n' "$part" "$tests" "$failed" "$seconds" "$verdict"
	[ "$verdict" = passed ] || status=1
done
if [ -n "$leftovers" ]; then
	printf 'left behind:\n%s\n' "$leftovers"
	status=1
fi
exit "$status"
