# Unified kernel images that systemd-boot loads, without Secure Boot. The real ukify makes the images, and the agent makes the addon.
. test/boots/systemd-boot.sh

make_root() {
	mkdir -p "$root/efi/EFI/BOOT" "$root/efi/EFI/Linux" "$root/efi/loader" "$root/etc/kernel"
	cp "$root/usr/lib/systemd/boot/efi/systemd-bootx64.efi" "$root/efi/EFI/BOOT/BOOTX64.EFI"
	echo 'timeout 0' >"$root/efi/loader/loader.conf"
	echo 0abcdef0123456789abcdef012345678 >"$root/etc/machine-id"
	echo "root=/dev/vda2 rw console=ttyS0 loglevel=4 panic=-1 no_timer_check init=/guest" >"$root/etc/kernel/cmdline"
	chroot "$root" ukify build --linux="/boot/vmlinuz-$version" --initrd="/boot/initrd.img-$version" --uname="$version" --cmdline=@/etc/kernel/cmdline \
		--os-release=@/etc/os-release --output="/efi/EFI/Linux/debian-$version.efi"
}
