# systemd-boot with entries that the real kernel-install writes, on an EFI partition at /efi. Needs the firmware of OVMF, dosfstools and mtools.
suite=trixie
packages=systemd-boot,systemd-boot-efi,systemd-ukify

for program in mkfs.vfat mcopy; do
	command -v "$program" >/dev/null || { echo "The boot test needs $program (dosfstools, mtools)" >&2; exit 1; }
done

make_root() {
	mkdir -p "$root/efi/EFI/BOOT" "$root/efi/loader/entries" "$root/etc/kernel"
	cp "$root/usr/lib/systemd/boot/efi/systemd-bootx64.efi" "$root/efi/EFI/BOOT/BOOTX64.EFI"
	echo 'timeout 0' >"$root/efi/loader/loader.conf"
	echo 0abcdef0123456789abcdef012345678 >"$root/etc/machine-id"
	printf 'layout=bls\nBOOT_ROOT=/efi\n' >"$root/etc/kernel/install.conf"
	echo "root=/dev/vda2 rw console=ttyS0 loglevel=4 panic=-1 no_timer_check init=/guest" >"$root/etc/kernel/cmdline"
	add_kernel
}

# add_kernel installs the kernel. Without a mounted partition, the entry names files by their path in the root file system.
add_kernel() {
	chroot "$root" kernel-install add "$version" "/boot/vmlinuz-$version"
	sed -i 's: /efi/: /:' "$root"/efi/loader/entries/*.conf
}

# efi_disk makes a disk with an EFI partition of the files in /efi, and a root partition.
make_disk() {
	truncate -s 1800M "$disk"
	printf 'label: gpt\nstart=2048,size=524288,type=U\nstart=526336,type=L\n' | sfdisk -q "$disk"
	truncate -s 256M "$dir/esp"
	mkfs.vfat -n ESP "$dir/esp" >/dev/null
	mcopy -s -i "$dir/esp" "$root"/efi/* ::
	dd if="$dir/esp" of="$disk" bs=512 seek=2048 conv=notrunc status=none
	rm -r "$dir/esp" "$root/efi"
	mkdir "$root/efi"
	mke2fs -q -t ext4 -O ^metadata_csum_seed,^orphan_file -d "$root" -E offset=$((526336 * 512)) "$disk" $(((1800 * 2048 - 526336 - 2048) / 2))k
	cp /usr/share/OVMF/OVMF_VARS_4M.fd "$dir/variables"
	options="-drive if=pflash,format=raw,readonly=on,file=/usr/share/OVMF/OVMF_CODE_4M.fd -drive if=pflash,format=raw,file=$dir/variables"
}
