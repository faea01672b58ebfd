#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the build tags that are our own (killpoints, e2e, ...), separated by commas.
set -eu
cd "$(dirname "$0")/.."
find . -name '*.go' -not -path './bin/*' -exec sed -n 's|^//go:build ||p' {} + |
	tr -c 'a-z0-9_\n' '\n' | grep -vxE '|linux|amd64|arm64|race|ignore|cgo' | sort -u | paste -sd, -
