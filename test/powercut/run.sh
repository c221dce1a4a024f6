#!/bin/sh
# Cuts the power of a virtual machine CUTS times for each of DISKS, see main.go: a file system and a tree of test/fixtures/hosts
# each, or a host of machine/trials.go. Needs Linux on amd64, QEMU, e2fsprogs, xfsprogs, dosfstools, mtools and, for a kernel,
# apt-get of Debian 12 or newer; KERNEL_ROOT names a tree with boot/vmlinuz-* and lib/modules to use instead.
set -eu
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin:/sbin
for program in qemu-system-x86_64 mke2fs mkfs.xfs mkfs.vfat mcopy; do
	command -v "$program" >/dev/null || { echo "The power cut test needs $program (qemu-system-x86, e2fsprogs, xfsprogs, dosfstools, mtools)" >&2; exit 1; }
done
cache=${SCO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/storage-client-operator}/powercut
root=${KERNEL_ROOT:-$cache/root}
mkdir -p "$cache"
if ! ls "$root"/boot/vmlinuz-* >/dev/null 2>&1; then
	package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
	(cd "$cache" && apt-get download -qq "$package" && dpkg-deb -x "$package"_*.deb root && rm "$package"_*.deb)
fi
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$cache/guest" ./test/powercut/guest
go build -o "$cache/powercut" ./test/powercut
for disk in ${DISKS:-ext4:debian-12 xfs:debian-12 ext4:rocky-9 xfs:rocky-9 ext4:rocky-9-trial xfs:rocky-9-trial ext4:systemd-boot-trial ext4:uki-trial}; do
	"$cache/powercut" -kernel "$(ls "$root"/boot/vmlinuz-* | tail -n 1)" -modules "$root/lib/modules" -guest "$cache/guest" \
		-filesystem "${disk%%:*}" -tree "test/fixtures/hosts/${disk#*:}" -cuts "${CUTS:-50}" "$@"
done
