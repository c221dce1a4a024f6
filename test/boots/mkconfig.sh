# GRUB with grub2-mkconfig and without entries, as on Azure Linux 3. Debian's programs stand in: they have Fedora's names and directory, 00_header reads
# the environment block of the menu's directory first, as Fedora's does, and the file of defaults has Azure Linux's variables. As in Fedora's patched
# version, grub2-mkconfig itself sources /etc/default/grub.d: Debian's does the same. The first boot makes the menu, because a chroot has no disk.
suite=sid
packages=grub-pc-bin,grub-common

make_root() {
	args="rw console=ttyS0 panic=-1 no_timer_check init=/guest"
	rm "$root/etc/grub.d/05_debian_theme" "$root/etc/kernel/postinst.d/zz-update-grub" "$root/etc/kernel/postrm.d/zz-update-grub" "$root/usr/sbin/update-grub"
	for file in usr/sbin/grub-mkconfig usr/sbin/grub-probe usr/sbin/grub-reboot usr/bin/grub-editenv usr/bin/grub-script-check usr/bin/grub-mkrelpath; do
		mv "$root/$file" "$root/$(echo "$file" | sed 's/grub-/grub2-/')"
	done
	sed -i -E 's,/boot/grub\b,/boot/grub2,g; s,\bgrub-(probe|editenv|script-check|mkrelpath)\b,grub2-\1,g' \
		"$root/usr/sbin/grub2-mkconfig" "$root/usr/share/grub/grub-mkconfig_lib" "$root"/etc/grub.d/[0-9]*
	sed -i 's,^if \[ -s ..prefix/grubenv \]; then$,if [ -f \\${config_directory}/grubenv ]; then\n  load_env -f \\${config_directory}/grubenv\nel&,' \
		"$root/etc/grub.d/00_header"
	grep -q '^elif \[ -s' "$root/etc/grub.d/00_header"
	mkdir -p "$root/boot/grub2" "$root/etc/default/grub.d"
	cat >"$root/etc/default/grub" <<END
GRUB_TIMEOUT=0
GRUB_DISTRIBUTOR="AzureLinux"
GRUB_DISABLE_SUBMENU=y
GRUB_DISABLE_RECOVERY=true
GRUB_TERMINAL="serial"
GRUB_CMDLINE_LINUX="$args"
GRUB_CMDLINE_LINUX_DEFAULT="loglevel=4"
END
	printf 'serial\nterminal_output serial\nset timeout=0\nmenuentry "first" {\n\tlinux /boot/vmlinuz-%s root=/dev/vda1 %s\n\tinitrd /boot/initrd.img-%s\n}\n' \
		"$version" "$args" "$version" >"$root/boot/grub2/grub.cfg"
	{ printf '# GRUB Environment Block\n'; printf '%1024s' '' | tr ' ' '#'; } | head -c 1024 >"$root/boot/grub2/grubenv"
}

make_disk() {
	bios_disk grub2
}
