#!/bin/sh
# Runs the story on virtual nodes. Says what is missing on this machine, if something is; see README.md.
set -eu
cd "$(dirname "$0")"

# The programs, and the Debian package that each comes from.
missing=
while read -r program package; do
	PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || missing="$missing $package"
done <<PROGRAMS
qemu-system-x86_64 qemu-system-x86
qemu-img qemu-utils
mmdebstrap mmdebstrap
ip iproute2
sfdisk fdisk
mke2fs e2fsprogs
ssh openssh-client
ssh-keygen openssh-client
unshare util-linux
PROGRAMS
[ "$(id -u)" = 0 ] || command -v newuidmap >/dev/null || missing="$missing uidmap"
if [ -n "$missing" ]; then
	echo "The end-to-end test needs Debian packages that are not installed:$missing" >&2
	echo "  apt-get install --no-install-recommends$missing" >&2
	exit 1
fi
if ! [ -w /dev/net/tun ]; then
	echo "The end-to-end test needs write access to /dev/net/tun: run it as root, or give this user access to it." >&2
	exit 1
fi
PATH=$PATH:/usr/sbin:/sbin exec go test -tags e2e -count=1 -timeout 60m -v . -ginkgo.timeout=50m -ginkgo.v "$@"
