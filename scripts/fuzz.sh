#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes every target of the given packages for FUZZTIME each. Run by `make fuzz`, which builds bin/tools/isolate.
#
# Inputs come from three places: f.Add in the target; testdata/fuzz/TARGET beside it, a few small ones that together
# reach what long runs did, and where an input that fails is written (both run with every `go test`); and Go's cache
# ($(go env GOCACHE)/fuzz), where a run leaves what was new to it, and the next goes on.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go} time=${FUZZTIME:-30s}
targets=0 failed=()
out=$(mktemp)
trap 'rm -f "$out"' EXIT

for pkg in $("$go" list "${@:-./...}"); do
	dir=$("$go" list -f '{{.Dir}}' "$pkg")
	# Most packages have no target: they aren't built only to find that out.
	grep -qs '^func Fuzz' "$dir"/*_test.go || continue
	"$go" test -list '^Fuzz' "$pkg" >"$out"
	for target in $(grep '^Fuzz' "$out"); do
		echo "fuzz: $pkg $target"
		targets=$((targets + 1))
		if bin/tools/isolate "$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "$pkg" >"$out" 2>&1; then
			tail -n 2 "$out"
		elif grep -q '^ *context deadline exceeded$' "$out" && ! grep -q 'Failing input written' "$out"; then
			# Before Go 1.27 a run fails now and then only because its time is up: https://go.dev/issue/75804
			echo "fuzz: $target: time was up in the middle of an input; no input failed"
		else
			cat "$out"
			failed+=("$target")
		fi
	done
done
if [ "$targets" = 0 ]; then
	echo 'fuzz: no target found' >&2
	exit 1
fi
echo "fuzz: $targets targets, $time each; failed: ${failed[*]:-none}"
[ "${#failed[@]}" = 0 ]
