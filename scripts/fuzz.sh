#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes every target of the given packages for FUZZTIME each, as many at a time as there are processors. Run by
# `make fuzz`, which builds bin/tools/isolate. `fuzz.sh -target PKG DIR TARGET` fuzzes one.
#
# Inputs come from three places: f.Add in the target; testdata/fuzz/TARGET beside it, a few small ones that together
# reach what long runs did, and where an input that fails is written (both run with every `go test`); and Go's cache
# ($(go env GOCACHE)/fuzz), where a run leaves what was new to it, and the next goes on.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
go=${GO:-go} time=${FUZZTIME:-30s}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/out

# inputs lists those that are kept in the tree for a target.
inputs() { ls "$dir/testdata/fuzz/$target" 2>/dev/null || true; }

# fuzz runs a target, and leaves in $found the inputs that failed and that Go has written for it.
fuzz() {
	local status=0
	inputs >"$work/before"
	bin/tools/isolate "$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x -parallel 1 "$pkg" >"$out" 2>&1 || status=$?
	found=$(inputs | comm -13 "$work/before" -)
	return "$status"
}

# timeUp says whether a run failed only because its time was up. Before Go 1.27 it does so now and then:
# https://go.dev/issue/75804
timeUp() {
	grep -q '^ *context deadline exceeded$' "$out" && [ -z "$found" ] && ! grep -Eq 'Failing input written|failing input file' "$out"
}

# late says whether a run failed only because an input took more than 10 s of a busy machine's time: by itself it must
# pass with 10 s of CPU time, and within 10 minutes.
late() {
	grep -q 'fuzzing process hung or terminated unexpectedly' "$out" || return 1
	CGO_ENABLED=0 "$go" test -c -o "$work/test" "$pkg" || return 1
	local name
	for name in ${found:-.}; do
		(cd "$dir" && ulimit -t 10 && "$root/bin/tools/isolate" "$work/test" -test.run "^$target\$/$name" -test.timeout 10m) || return 1
	done
}

# one fuzzes a target, and prints all of its output at once.
one() {
	pkg=$1 dir=$2 target=$3
	local try name
	echo "fuzz: $pkg $target"
	for try in 1 2; do
		if fuzz; then
			tail -n 2 "$out"
			return
		elif timeUp; then
			echo "fuzz: $target: time was up in the middle of an input; no input failed"
			return
		elif [ "$try" = 1 ] && cp "$out" "$work/first" && late >"$work/late" 2>&1; then
			cat "$work/first"
			echo "fuzz: $target: what hung passes by itself: the machine is busy; once more, and then it is a failure"
			for name in $found; do
				head -c 4000 "$dir/testdata/fuzz/$target/$name"
				rm "$dir/testdata/fuzz/$target/$name"
			done
		else
			cat "$out"
			echo "fuzz: $target: failed"
			return 1
		fi
	done
}

if [ "${1:-}" = -target ]; then
	shift
	status=0
	one "$@" >"$work/said" || status=$?
	cat "$work/said"
	exit "$status"
fi

for pkg in $("$go" list "${@:-./...}"); do
	dir=$("$go" list -f '{{.Dir}}' "$pkg")
	# Most packages have no target: they aren't built only to find that out.
	grep -qs '^func Fuzz' "$dir"/*_test.go || continue
	"$go" test -list '^Fuzz' "$pkg" >"$out"
	for target in $(grep '^Fuzz' "$out"); do
		printf '%s\n' "$pkg" "$dir" "$target" >>"$work/targets"
	done
done
if ! [ -s "$work/targets" ]; then
	echo 'fuzz: no target found' >&2
	exit 1
fi
status=0
xargs -d '\n' -n 3 -P "$(nproc)" scripts/fuzz.sh -target <"$work/targets" || status=1
echo "fuzz: $(($(wc -l <"$work/targets") / 3)) targets, $time each$([ "$status" = 0 ] || echo '; some failed: see above')"
exit "$status"
