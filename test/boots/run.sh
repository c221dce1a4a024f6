#!/bin/sh
# Boots a virtual machine whose GRUB reads boot loader entries, and runs the agent's code in each boot, see guest/main.go. Needs root, Linux on amd64,
# QEMU, e2fsprogs, sfdisk and mmdebstrap. GRUB and the kernel are Debian's: GRUB 2.14 or newer reads entries, so the release is SUITE (sid).
set -eu
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/sbin:/sbin
for program in qemu-system-x86_64 mke2fs sfdisk mmdebstrap; do
	command -v "$program" >/dev/null || { echo "The boot test needs $program (qemu-system-x86, e2fsprogs, fdisk, mmdebstrap)" >&2; exit 1; }
done
cache=${SCO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/storage-client-operator}/boots
suite=${SUITE:-sid}
mkdir -p "$cache"
if [ ! -f "$cache/$suite.tar" ]; then
	mirror=$(sed -n 's/^URIs: *//p' /etc/apt/sources.list.d/*.sources | head -n 1)
	mmdebstrap --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' \
		--include=linux-image-cloud-amd64,initramfs-tools,kmod,udev,grub-pc-bin,grub-common,util-linux \
		--essential-hook='mkdir -p "$1/etc/initramfs-tools"; printf "virtio_pci\nvirtio_blk\next4\n" > "$1/etc/initramfs-tools/modules"' \
		"$suite" "$cache/$suite.tmp.tar" "deb $mirror $suite main"
	mv "$cache/$suite.tmp.tar" "$cache/$suite.tar"
fi
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$cache/guest" ./test/boots/guest
dir=$(mktemp -d "$cache/run.XXXXXX")
trap 'rm -rf "$dir"' EXIT
root=$dir/root
mkdir "$root"
tar -C "$root" -xf "$cache/$suite.tar"
cp "$cache/guest" "$root/guest"
echo 0 >"$root/step"
version=$(ls "$root/lib/modules")
# A machine ID that starts with 0 and a letter sorts before "0-" in GRUB.
id=0abcdef0123456789abcdef012345678
args="root=/dev/vda1 rw console=ttyS0 loglevel=4 panic=-1 init=/guest"
entries=$root/boot/loader/entries
mkdir -p "$entries" "$root/boot/grub2" "$root/etc/kernel" "$root/etc/default"
cat >"$entries/$id-$version.conf" <<EOF
title Debian $version
version $version
linux /boot/vmlinuz-$version
initrd /boot/initrd.img-$version
options $args
EOF
sed 's/^title .*/title Rescue/; s/^version .*/version 0-rescue/' "$entries/$id-$version.conf" >"$entries/$id-0-rescue.conf"
echo "$args" >"$root/etc/kernel/cmdline"
echo 'GRUB_CMDLINE_LINUX="quiet"' >"$root/etc/default/grub"
echo 'stands in for grubby: --no-etc-grub-update' >"$root/usr/sbin/grubby"
chmod 755 "$root/usr/sbin/grubby"
ln -sf grub-probe "$root/usr/sbin/grub2-probe"
cat >"$root/boot/grub2/grub.cfg" <<'EOF'
serial
terminal_output serial
load_env
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="${saved_entry}"
fi
### BEGIN /etc/grub.d/08_fallback_counting ###
insmod increment
# Check if boot_counter exists and boot_success=0 to activate this behaviour.
if [ -n "${boot_counter}" -a "${boot_success}" = "0" ]; then
  # if countdown has ended, choose to boot rollback deployment,
  # i.e. default=1 on OSTree-based systems.
  if  [ "${boot_counter}" = "0" -o "${boot_counter}" = "-1" ]; then
    set default=1
    set boot_counter=-1
  # otherwise decrement boot_counter
  else
    decrement boot_counter
  fi
  save_env boot_counter
fi
### END /etc/grub.d/08_fallback_counting ###
set timeout=0
blscfg --path /boot/loader/entries
EOF
{ printf '# GRUB Environment Block\nboot_success=0\n'; printf '%1000s' '' | tr ' ' '#'; } | head -c 1024 >"$root/boot/grub2/grubenv"
cp -r "$root/usr/lib/grub/i386-pc" "$root/boot/grub2/"
disk=$dir/disk
truncate -s 1600M "$disk"
echo '2048,,L,*' | sfdisk -q "$disk"
chroot "$root" grub-mkimage -O i386-pc -d /usr/lib/grub/i386-pc -p '(hd0,msdos1)/boot/grub2' -o /tmp/core.img biosdisk part_msdos ext2
dd if="$root/usr/lib/grub/i386-pc/boot.img" of="$disk" bs=440 count=1 conv=notrunc status=none
dd if="$root/tmp/core.img" of="$disk" bs=512 seek=1 conv=notrunc status=none
mke2fs -q -t ext4 -O ^metadata_csum_seed,^orphan_file -d "$root" -E offset=$((2048 * 512)) "$disk" $(((1600 * 2048 - 2048) / 2))k
rm -rf "$root"
accel=${ACCEL:-tcg,thread=multi}
started=$(date +%s)
timeout "${LIMIT:-1800}" qemu-system-x86_64 -machine pc,graphics=off -vga none -display none -accel "$accel" -cpu max,la57=off,svm=off -smp 1 -m 768 \
	-nic none -monitor none -serial stdio -drive "file=$disk,format=raw,if=virtio,cache=unsafe" | tee "$cache/$suite.log"
echo "$(grep -ac '^##### boot' "$cache/$suite.log") boots in $(($(date +%s) - started)) s ($accel); log: $cache/$suite.log"
grep -aq '^PASS' "$cache/$suite.log"
