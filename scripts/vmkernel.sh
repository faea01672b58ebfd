#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Puts Debian's kernel for virtual machines into a directory: vmlinuz and lib/modules. The package is unpacked, not
# installed: nothing of it comes into the machine's /boot. Installs what virtual machines need besides, where that is missing.
set -eu
dir=$1
export DEBIAN_FRONTEND=noninteractive
missing=
for p in qemu-system-x86 busybox-static iproute2 nftables; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q '^install ok installed$' || missing="$missing $p"
done
if [ -n "$missing" ]; then
	apt-get update -qq
	# shellcheck disable=SC2086 # several words
	apt-get install -qq -y --no-install-recommends $missing </dev/null
fi
[ ! -e "$dir/vmlinuz" ] || exit 0

# linux-image-cloud-amd64 names the package of the current version.
newest() { apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: //p' | head -n 1; }
package=$(newest)
if [ -z "$package" ]; then
	apt-get update -qq
	package=$(newest)
fi
[ -n "$package" ] || { echo "vmkernel: apt knows no linux-image-cloud-amd64: is this Debian on amd64?" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
chmod 755 "$tmp"
if ! (cd "$tmp" && apt-get download -qq -o APT::Sandbox::User=root "$package"); then
	apt-get update -qq # the list was older than the archive
	package=$(newest)
	(cd "$tmp" && apt-get download -qq -o APT::Sandbox::User=root "$package")
fi
dpkg-deb -x "$tmp"/linux-image-*.deb "$tmp/x"
mkdir -p "$dir"
rm -rf "$dir/lib"
mv "$tmp/x/lib" "$dir/lib"
mv "$tmp"/x/boot/vmlinuz-* "$dir/vmlinuz"
