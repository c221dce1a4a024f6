#!/bin/sh
# Runs the story on virtual nodes. Says what is missing on this machine, if something is; see README.md.
set -eu
cd "$(dirname "$0")"
PATH=$PATH:/usr/sbin:/sbin

# The programs, and the Debian package that each comes from.
missing=
while read -r program package; do
	command -v "$program" >/dev/null || missing="$missing $package"
done <<PROGRAMS
qemu-system-x86_64 qemu-system-x86
qemu-img qemu-utils
mmdebstrap mmdebstrap
ip iproute2
sfdisk fdisk
mke2fs e2fsprogs
ssh openssh-client
ssh-keygen openssh-client
unshare util-linux
PROGRAMS
[ "$(id -u)" = 0 ] || command -v newuidmap >/dev/null || missing="$missing uidmap"
if [ -n "$missing" ]; then
	echo "The end-to-end test needs Debian packages that are not installed:$missing" >&2
	echo "  apt-get install --no-install-recommends$missing" >&2
	exit 1
fi
if ! [ -w /dev/net/tun ]; then
	echo "The end-to-end test needs write access to /dev/net/tun: run it as root, or give this user access to it." >&2
	exit 1
fi

cache=${SCO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/storage-client-operator}
mkdir -p "$cache/e2e"
# What the upgrade begins with: the release before.
FORMER=${FORMER:-d57d12a0}
# Left out unless they are asked for, for their length; each needs nothing but a fresh cluster.
long="clamped health mount-options shadowed in-vain owners probe evidence csi confirm failing-boot re-registered healthy-minutes sample trial effects known-bad upgrade chart"
labels=${SCO_E2E_LABELS-$(echo "$long" | sed 's/[^ ]*/!&/g; s/ / \&\& /g')}
minutes=60
if [ -z "$labels" ]; then
	minutes=240
elif [ -z "${SCO_E2E_LABELS-}" ]; then
	echo "Left out for their length: $long. \"make e2e-all\" plays them too, two to three hours more; SCO_E2E_LABELS=LABEL plays one alone"
else
	minutes=120
	echo "Only specs with the labels \"$labels\""
fi
# The CSI drivers are no modules of a proxy: their source trees are given, and bring along what they are built of.
if [ -n "${CSI_SOURCES-}" ]; then
	SCO_CSI_PROGRAMS=$cache/e2e/csi
	export SCO_CSI_PROGRAMS
	mkdir -p "$SCO_CSI_PROGRAMS"
	for protocol in nfs smb; do
		echo "Building $protocol.csi.k8s.io from $CSI_SOURCES/csi-driver-$protocol"
		CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -C "$CSI_SOURCES/csi-driver-$protocol" -mod=vendor -trimpath -o "$SCO_CSI_PROGRAMS/${protocol}plugin" "./cmd/${protocol}plugin"
	done
	echo "Building csi-provisioner from $CSI_SOURCES/external-provisioner"
	CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -C "$CSI_SOURCES/external-provisioner" -mod=vendor -trimpath -o "$SCO_CSI_PROGRAMS/csi-provisioner" ./cmd/csi-provisioner
fi
# An earlier commit is built for its upgrade, with images that have a name of their own.
case ${SCO_E2E_LABELS-none} in
'' | *upgrade*)
	former=$cache/e2e/former
	rm -rf "$former"
	if git cat-file -e "$FORMER^{commit}" 2>/dev/null; then
		echo "Building the images and the manifest of commit $FORMER"
		mkdir -p "$former/dist"
		git -C "$(git rev-parse --show-toplevel)" archive "$FORMER" | tar -x -C "$former"
		make -s -C "$former" images MANAGER_IMAGE=localhost/storageclient/manager:former AGENT_IMAGE=localhost/storageclient/node-agent:former
		"${SCO_SETS:-$cache/sets}/kustomize/kustomize" build "$former/config/default" |
			sed -E 's!(localhost/)?storageclient/(manager|node-agent):dev!localhost/storageclient/\2:former!' >"$former/dist/install.yaml"
		export SCO_FORMER=$former
	fi
	;;
esac
case ${SCO_E2E_LABELS-none} in
'' | *chart*)
	make -s -C ../.. chart
	SCO_HELM=${SCO_SETS:-$cache/sets}/helm/helm
	export SCO_HELM
	;;
esac
# What long specs bring to nodes or run themselves: nothing can be downloaded where the tests run.
if [ -n "${SCO_E2E_LABELS+set}" ]; then
	SCO_PROGRAMS=$cache/e2e/programs
	export SCO_PROGRAMS
	mkdir -p "$SCO_PROGRAMS"
	CGO_ENABLED=0 go build -o "$SCO_PROGRAMS/" ../../cmd/node-agent ../../cmd/kubectl-storageclient ./registrar ./recorder
fi
# Compiled first, and then in the place of this shell: whoever ends this process ends the test, which cleans up.
go test -c -tags e2e -o "$cache/e2e/e2e.test" .
[ -z "${SCO_TIMES-}" ] || set -- "-ginkgo.json-report=$SCO_TIMES/e2e.specs" "$@"
exec "$cache/e2e/e2e.test" -test.timeout=$((minutes + 10))m -test.v -ginkgo.timeout=${minutes}m -ginkgo.v -ginkgo.no-color -ginkgo.label-filter="$labels" "$@"
