#!/bin/sh
# disk.sh DEBIAN.tar FILES BINARIES DIR: DIR/disk.raw, a partitioned disk without a boot loader, and the kernel and
# initramfs to start it with once. FILES and BINARIES are directories; run by root or in a user namespace.
set -eu
debian=$1 files=$2 binaries=$3 out=$4
size=6144 # MiB
root=$out/root
mkdir -p "$root"

tar --numeric-owner --exclude='./dev/*' -C "$root" -xf "$debian"
cp -R "$files/." "$root/"
chmod 755 "$root"/usr/local/sbin/*
cp "$binaries"/* "$root/usr/local/bin/"
mkdir -p "$root/opt/cni" "$root/var/log/journal" "$root/srv/nfs"
ln -s /usr/lib/cni "$root/opt/cni/bin"
: >"$root/etc/machine-id"
: >"$root/etc/resolv.conf"

chroot "$root" systemctl --quiet enable seed containerd kubelet kubernetes-address systemd-networkd ssh
# The servers are started on one machine only; a node that loads nfsd at boot is no longer a plain client. tuned is
# there and does not run, as where nobody has asked for it.
for unit in nfs-server rpcbind.service rpcbind.socket smbd nmbd samba-ad-dc nfs-ganesha nfs-ganesha-lock tuned systemd-networkd-wait-online e2scrub_reap; do
	chroot "$root" systemctl --quiet disable "$unit" 2>/dev/null || true
done
# What only costs time at boot, which is short under software emulation.
chroot "$root" systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
	fstrim.timer nfs-blkmap.service systemd-binfmt.service systemd-network-generator.service rpc-statd-notify.service \
	modprobe@configfs.service modprobe@dm_mod.service modprobe@drm.service modprobe@efi_pstore.service \
	modprobe@fuse.service modprobe@loop.service

cp "$root"/boot/vmlinuz-* "$out/vmlinuz"
cp "$root"/boot/initrd.img-* "$out/initrd"
truncate -s "${size}M" "$out/disk.raw"
echo '2048,,L,*' | sfdisk --quiet "$out/disk.raw"
# By offset and from a directory: no loop device, no mount, and no kernel that knows partition tables.
mke2fs -q -t ext4 -L node-root -d "$root" -E offset=1048576,lazy_itable_init=1 "$out/disk.raw" "$(((size - 1) * 1024))k"
rm -rf "$root"
