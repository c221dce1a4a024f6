# GRUB with boot loader entries, as on RHEL: GRUB 2.14 or newer reads entries. grubby is simulated, see guest/main.go.
suite=sid
packages=grub-pc-bin,grub-common

make_root() {
	# A machine ID that starts with 0 and a letter sorts before "0-" in GRUB.
	id=0abcdef0123456789abcdef012345678
	args="root=/dev/vda1 rw console=ttyS0 loglevel=4 panic=-1 no_timer_check init=/guest"
	entries=$root/boot/loader/entries
	mkdir -p "$entries" "$root/boot/grub2" "$root/etc/kernel" "$root/etc/default"
	cat >"$entries/$id-$version.conf" <<END
title Debian $version
version $version
linux /boot/vmlinuz-$version
initrd /boot/initrd.img-$version
options $args
END
	sed 's/^title .*/title Rescue/; s/^version .*/version 0-rescue/' "$entries/$id-$version.conf" >"$entries/$id-0-rescue.conf"
	echo "$args" >"$root/etc/kernel/cmdline"
	echo 'GRUB_CMDLINE_LINUX="quiet"' >"$root/etc/default/grub"
	echo 'stands in for grubby: --no-etc-grub-update' >"$root/usr/sbin/grubby"
	chmod 755 "$root/usr/sbin/grubby"
	ln -sf grub-probe "$root/usr/sbin/grub2-probe"
	cat >"$root/boot/grub2/grub.cfg" <<'END'
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
END
	{ printf '# GRUB Environment Block\nboot_success=0\n'; printf '%1000s' '' | tr ' ' '#'; } | head -c 1024 >"$root/boot/grub2/grubenv"
}

make_disk() {
	bios_disk grub2
}
