#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gofmt, go vet and staticcheck with all checks, each also with our own build tags; govulncheck where its database can
# be reached. Run by `make lint`, which builds the tools.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
tags=$(scripts/tags.sh)
status=0

unformatted=$(find . -name '*.go' -not -path './bin/*' -exec gofmt -l {} +)
if [ -n "$unformatted" ]; then
	printf 'gofmt would change:\n%s\n' "$unformatted"
	status=1
fi

for t in '' ${tags:+"$tags"}; do
	echo "lint: go vet and staticcheck${t:+ with tags $t}"
	"$go" vet -tags "$t" ./... || status=1
	bin/tools/staticcheck -checks all -tags "$t" ./... || status=1
done

echo 'lint: govulncheck'
if ! out=$(timeout 300 bin/tools/govulncheck ./... 2>&1); then
	case $out in
	*'fetching vulnerabilities'*) echo 'govulncheck: its database cannot be reached from here; not checked' ;;
	*) printf '%s\n' "$out"; status=1 ;;
	esac
fi
exit $status
