#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gofmt, go vet and staticcheck with all checks, on the source with all of our own build tags. Run by `make lint`, which builds the tools.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
# As the binaries are built: what is compiled here needn't be compiled again.
export CGO_ENABLED=0 GOFLAGS=-trimpath
tags=$(scripts/tags.sh),$(scripts/tags.sh shipped)
status=0

unformatted=$(find . -name '*.go' -not -path './bin/*' -exec gofmt -l {} +)
if [ -n "$unformatted" ]; then
	printf 'gofmt would change:\n%s\n' "$unformatted"
	status=1
fi

"$go" vet -tags "$tags" ./... || status=1
bin/tools/staticcheck -checks all -tags "$tags" ./... || status=1
exit $status
