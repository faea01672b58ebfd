#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes every target of the given packages for FUZZTIME each. Run by `make fuzz`, which builds bin/tools/isolate.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go} time=${FUZZTIME:-30s}
targets=0 status=0

for pkg in $("$go" list "${@:-./...}"); do
	for target in $("$go" test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
		echo "fuzz: $pkg $target"
		targets=$((targets + 1))
		bin/tools/isolate "$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$pkg" || status=1
	done
done
if [ "$targets" = 0 ]; then
	echo 'fuzz: no target found' >&2
	exit 1
fi
echo "fuzz: $targets targets, $time each"
exit $status
