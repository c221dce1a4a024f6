#!/bin/sh
# kernels.sh ROOT VERSION...: unpacks kernels of the backports into ROOT, with an initial RAM file system each. It leaves out kernels that the archive lacks.
set -eu
root=$1
shift
packages=$root/tmp/kernels
mkdir "$packages"
for version; do
	name=$version-cloud-amd64
	case $version in 7.*) wanted="linux-base-$name linux-modules-$name linux-binary-$name" ;; *) wanted=linux-image-$name ;; esac
	if ! (cd "$packages" && APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get download -qq $wanted); then
		echo "NOT TESTED: the archive has no kernel $version" >&2
		rm -f "$packages"/*.deb
		continue
	fi
	for package in "$packages"/*.deb; do
		dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$root"
		rm "$package"
	done
	# Since 7.1, the kernel and its configuration are next to the modules.
	for file in vmlinuz config; do
		[ -e "$root/boot/$file-$name" ] || cp "$root/usr/lib/modules/$name/$file" "$root/boot/$file-$name"
	done
	chroot "$root" depmod "$name"
	chroot "$root" update-initramfs -c -k "$name"
done
