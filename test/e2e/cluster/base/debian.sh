#!/bin/sh
# debian.sh OUT.tar: Debian 12 with what a node needs. Neither root nor a network other than the Debian mirror is needed.
set -eu

# The boot disk is a virtio block device with ext4, always: an initramfs of only these modules is read and unpacked
# in a fraction of the time, which counts under software emulation.
initramfs='mkdir -p "$1/etc/initramfs-tools/conf.d"
echo MODULES=list >"$1/etc/initramfs-tools/conf.d/node"
printf "virtio_pci\nvirtio_blk\ncrc32c_generic\next4\n" >"$1/etc/initramfs-tools/modules"'

exec mmdebstrap --variant=minbase \
	--dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--essential-hook="$initramfs" \
	--include=linux-image-cloud-amd64,grub-pc,systemd-sysv,dbus,udev,kmod,procps,ca-certificates \
	--include=openssh-server,iproute2,iptables,nfs-common,nfs-kernel-server,xfsprogs \
	--include=runc,containernetworking-plugins \
	--include=tuned,cifs-utils,samba,nfs-ganesha,nfs-ganesha-vfs \
	bookworm "$1"
