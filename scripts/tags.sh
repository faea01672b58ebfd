#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints build tags, separated by commas: without an argument our own (killpoints, e2e, ...); with "shipped" those that
# the binaries are built with, by make and by tests.
set -eu
cd "$(dirname "$0")/.."
if [ "${1:-}" = shipped ]; then
	# Without grpc's tracing pages, html/template isn't linked: a fifth less to load whenever a plugin is started.
	echo grpcnotrace
	exit
fi
find . -name '*.go' -not -path './bin/*' -exec sed -n 's|^//go:build ||p' {} + |
	tr -c 'a-z0-9_\n' '\n' | grep -vxE '|linux|amd64|arm64|race|ignore|cgo' | sort -u | paste -sd, -
