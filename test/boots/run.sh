#!/bin/sh
# Boots a virtual machine for each LABEL (default: all), and runs the agent's code in each boot, see guest/main.go. LABEL.sh makes the machine of one
# boot loader. Needs root, Linux on amd64, QEMU, e2fsprogs, sfdisk and mmdebstrap. Boot loader and kernel are Debian's, of the release SUITE.
#
# LABEL.sh is sourced. It sets:
#   suite     the default release
#   packages  the packages of the root file system, separated by commas, in addition to those below
#   make_root a function that changes the root file system in $root; its kernel is $version
#   make_disk a function that makes the image $disk from $root. It can make other files in $dir, and sets
#   options   additional options of QEMU, as words without spaces (optional)
# Its kernel command line needs no_timer_check: a busy machine emulates the timer so slowly that the kernel panics without it.
set -eu
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin:/sbin
for program in qemu-system-x86_64 mke2fs sfdisk mmdebstrap; do
	command -v "$program" >/dev/null || { echo "The boot test needs $program (qemu-system-x86, e2fsprogs, fdisk, mmdebstrap)" >&2; exit 1; }
done
cache=${SCO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/storage-client-operator}/boots
mkdir -p "$cache"

# unpack_root unpacks a root file system of $suite with $packages, which the cache keeps.
unpack_root() {
	name=$suite-$(echo "$packages" | cksum | cut -d ' ' -f 1)
	if [ ! -f "$cache/$name.tar" ]; then
		mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources | head -n 1)
		mmdebstrap --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' \
			--include=linux-image-cloud-amd64,initramfs-tools,kmod,udev,util-linux,"$packages" \
			--essential-hook='mkdir -p "$1/etc/initramfs-tools"; printf "virtio_pci\nvirtio_blk\next4\n" > "$1/etc/initramfs-tools/modules"' \
			"$suite" "$cache/$name.tmp.tar" "deb $mirror $suite main"
		mv "$cache/$name.tmp.tar" "$cache/$name.tar"
	fi
	mkdir "$root"
	tar -C "$root" -xf "$cache/$name.tar"
}

# bios_disk makes a disk with one partition and GRUB for BIOS, whose files are in /boot/$1.
bios_disk() {
	cp -r "$root/usr/lib/grub/i386-pc" "$root/boot/$1/"
	truncate -s 1600M "$disk"
	echo '2048,,L,*' | sfdisk -q "$disk"
	chroot "$root" grub-mkimage -O i386-pc -d /usr/lib/grub/i386-pc -p "(hd0,msdos1)/boot/$1" -o /tmp/core.img biosdisk part_msdos ext2
	dd if="$root/usr/lib/grub/i386-pc/boot.img" of="$disk" bs=440 count=1 conv=notrunc status=none
	dd if="$root/tmp/core.img" of="$disk" bs=512 seek=1 conv=notrunc status=none
	mke2fs -q -t ext4 -O ^metadata_csum_seed,^orphan_file -d "$root" -E offset=$((2048 * 512)) "$disk" $(((1600 * 2048 - 2048) / 2))k
}

run_label() {
	label=$1 options=
	dir=$(mktemp -d "$cache/run.XXXXXX")
	trap 'rm -rf "$dir"' EXIT
	root=$dir/root disk=$dir/disk log=$cache/$label.log accel=${ACCEL:-tcg,thread=multi}
	. "test/boots/$label.sh"
	suite=${SUITE:-$suite}
	unpack_root
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$root/guest" ./test/boots/guest
	echo 0 >"$root/step"
	echo "$label" >"$root/label"
	version=$(ls "$root/lib/modules")
	make_root
	make_disk
	rm -rf "$root"
	started=$(date +%s)
	# shellcheck disable=SC2086
	timeout "${LIMIT:-1800}" qemu-system-x86_64 -machine pc,graphics=off -vga none -display none -accel "$accel" -cpu max,la57=off,svm=off,smap=off,erms=off,fsrm=off -smp 1 -m 768 \
		-nic none -monitor none -serial stdio -drive "file=$disk,format=raw,if=virtio,cache=unsafe" $options | tee "$log"
	echo "$label: $(grep -ac '^##### boot' "$log") boots in $(($(date +%s) - started)) s ($suite, $accel); log: $log"
	grep -aq '^PASS' "$log"
}

if [ $# = 0 ]; then
	for file in test/boots/*.sh; do
		label=$(basename "$file" .sh)
		[ "$label" = run ] || set -- "$@" "$label"
	done
fi
for label; do
	(run_label "$label")
done
