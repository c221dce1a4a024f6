#!/bin/sh
# Boots a virtual machine with each of KERNELS, reproduces known problems of tuning/knownbad, and compares them with the registry, see guest/main.go. Needs
# root, Linux on amd64, QEMU, e2fsprogs and mmdebstrap. The user space is Debian 12 with nfs-ganesha of its backports.
set -eu
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin:/sbin
for program in qemu-system-x86_64 mke2fs mmdebstrap; do
	command -v "$program" >/dev/null || { echo "The test of known problems needs $program (qemu-system-x86, e2fsprogs, mmdebstrap)" >&2; exit 1; }
done
cache=${SCO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/storage-client-operator}/knownbad
backports="6.12.57+deb12 6.12.69+deb12 6.12.74+deb12 6.12.85+deb12 7.3.4+deb13"
mkdir -p "$cache"
if [ ! -f "$cache/root.tar" ]; then
	mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources | head -n 1)
	# The kernels of the backports are unpacked, not installed: those of trixie depend on packages that Debian 12 does not have.
	mmdebstrap --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' \
		--include=linux-image-cloud-amd64/bookworm,initramfs-tools,kmod,udev,nfs-kernel-server,nfs-common,nfs-ganesha/bookworm-backports,nfs-ganesha-vfs/bookworm-backports,xfsprogs,util-linux,iproute2 \
		--essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d"; printf "virtio_pci\nvirtio_blk\next4\n" >"$1/etc/initramfs-tools/modules"' \
		--essential-hook='echo MODULES=list >"$1/etc/initramfs-tools/conf.d/modules"' \
		--customize-hook="test/knownbad/kernels.sh \"\$1\" $backports" \
		bookworm "$cache/root.tmp.tar" "deb $mirror bookworm main" "deb $mirror bookworm-backports main" "deb $mirror trixie-backports main"
	mv "$cache/root.tmp.tar" "$cache/root.tar"
fi
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$cache/guest" ./test/knownbad/guest
dir=$(mktemp -d "$cache/run.XXXXXX")
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/root"
tar -C "$dir/root" -xf "$cache/root.tar"
cp "$cache/guest" "$dir/root/guest"
mv "$dir/root/boot" "$dir/boot"
mkdir "$dir/root/boot"
cp "$dir/boot"/config-* "$dir/root/boot"
truncate -s 2500M "$dir/disk"
mke2fs -q -t ext4 -d "$dir/root" "$dir/disk"
versions=$(ls "$dir/root/lib/modules")
rm -rf "$dir/root"
failed=
# The kernel's check of the timer fails if the machine is slow. TRIALS=log tests the kernel log only.
for version in ${KERNELS:-$versions}; do
	log=$cache/$version.log
	started=$(date +%s)
	TMPDIR=$dir timeout "${LIMIT:-3600}" chrt -i 0 qemu-system-x86_64 -machine pc,graphics=off -vga none -display none -accel "${ACCEL:-tcg,thread=multi}" -cpu max,la57=off,svm=off,smap=off,erms=off,fsrm=off -smp 1 -m 1024 \
		-no-reboot -nic none -monitor none -serial stdio -drive "file=$dir/disk,format=raw,if=virtio,snapshot=on" -kernel "$dir/boot/vmlinuz-$version" -initrd "$dir/boot/initrd.img-$version" \
		-append "root=/dev/vda rw console=ttyS0 loglevel=4 panic=-1 no_timer_check init=/guest${TRIALS:+ trials=$TRIALS}" >"$log" </dev/null || true
	grep -aE '^(#####|RESULT|FAIL|PASS)' "$log" || true
	grep -aq '^PASS' "$log" || failed="$failed $version"
	echo "$version took $(($(date +%s) - started)) s; log: $log"
done
# A problem that appears on all kernels, or on none, proves no range of the registry.
for version in ${KERNELS:-$versions}; do grep -a '^RESULT' "$cache/$version.log" || true; done >"$dir/results"
for id in $(cut -d' ' -f3 "$dir/results" | sort -u); do
	echo "$id:$(for state in appears absent; do printf ' %s on' "$state"; sed -n "s/^RESULT \([^ ]*\) $id $state:.*/ \1/p" "$dir/results" | uniq | tr -d '\n'; printf ';'; done)"
done
for version in $backports; do
	[ -f "$dir/boot/vmlinuz-$version-cloud-amd64" ] || echo "NOT TESTED: the archive had no kernel $version when $cache/root.tar was made" >&2
done
if [ -n "$failed" ]; then
	echo "FAIL:$failed" >&2
	exit 1
fi
