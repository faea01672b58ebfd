#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the commands that the arguments name into bin/, and says every five seconds how far it is. VERSION is what they say of themselves.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
tags=$(scripts/tags.sh shipped)
commands=("${@/#/./cmd/}")
export CGO_ENABLED=0

echo "build: $* (looking for their packages)"
total=$("$go" list -deps -tags "$tags" "${commands[@]}" | wc -l)

# progress counts the packages that go names as it has built them, and passes on all else.
progress() {
	local built=0 said=$SECONDS line status
	while true; do
		status=0
		IFS= read -r -t 5 line || status=$?
		if [ "$status" -gt 0 ] && [ "$status" -le 128 ]; then # the end; above 128 nothing came
			break
		fi
		case $status$line in
		0*[[:space:]]* | 0'#'*) printf '%s\n' "$line" >&2 ;;
		0?*) built=$((built + 1)) ;;
		esac
		if [ $((SECONDS - said)) -ge 5 ]; then
			said=$SECONDS
			echo "build: $built of at most $total packages after $SECONDS s"
		fi
	done
	echo "build: built $built of $total packages in $SECONDS s"
}

"$go" build -v -trimpath -buildvcs=false -tags "$tags" -ldflags "-s -w -X main.version=${VERSION:-}" -o bin/ "${commands[@]}" 2>&1 | progress
