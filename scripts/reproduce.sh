#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the images of this commit twice, from two places and with a build cache each, and compares their digests. Run by `make soak`.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
for n in one another; do
	git clone -q . "$dir/$n"
	GOCACHE="$dir/$n-cache" make -s -C "$dir/$n" images IMAGEFLAGS="-arch $(go env GOARCH)" | awk '/^sha256:/ { print $1, $2, $3 }' >"$dir/$n.digests"
	rm -rf "$dir/$n-cache"
done
cat "$dir/one.digests"
test -s "$dir/one.digests"
diff "$dir/one.digests" "$dir/another.digests"
