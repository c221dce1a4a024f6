#!/usr/bin/env bash
# Builds a release of the current commit: images, plugin, manifest, chart, signatures and provenance. Run by "make release";
# docs/versions.md describes the contents and how to verify them.
#
#   VERSION=v1.2.3 KEY=cosign.key REGISTRY=registry.example.com/storageclient hack/release.sh
#
# KEY is the private key for signatures; without it the release is not signed, and the last line reports that. BUILDER is the URI of the
# builder.
set -euo pipefail

cd "$(dirname "$0")/.."
version=${VERSION:-} key=${KEY:-} registry=${REGISTRY:-}
builder=${BUILDER:-https://github.com/storageclient/operator/blob/main/hack/release.sh}
output=$PWD/dist/release/$version

refuse() {
  echo "release: $*" >&2
  exit 1
}

[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || refuse "VERSION is \"$version\": give one such as v1.2.3"
[[ ${version%%-*} == "${RELEASE:-}" ]] || refuse "the documentation names ${RELEASE:-no release}: set RELEASE in the Makefile to ${version%%-*}, and every ?ref= with it"
[[ -n $registry ]] || refuse 'give REGISTRY, what the names of the images begin with'
[[ -z $key || -r $key ]] || refuse "cannot read the key $key"
[[ -z $key ]] || key=$(realpath "$key")
[[ -z $(git status --porcelain) ]] || refuse 'the tree is not what the commit says: commit, or put your changes away'
commit=$(git rev-parse HEAD)
[[ $(git rev-parse --verify --quiet "refs/tags/$version^{commit}") == "$commit" ]] || refuse "this commit has no tag $version: git tag $version"
grep -q "^## ${version#v}" CHANGELOG.md || refuse "CHANGELOG.md has no section \"## ${version#v}\""

# A known vulnerability stops the release. If the database is unreachable, the release is built, and vulnerabilities.txt and the last lines
# report that.
check_vulnerabilities() {
  local code=0
  hack/vulnerabilities.sh "$1" || code=$?
  case $code in
    0 | 4) ;;
    *) refuse 'govulncheck reports vulnerabilities in reachable code' ;;
  esac
}

# As "make images" compiles, with the commit and its tag in the binary.
compile() {
  local architecture
  for architecture in amd64 arm64; do
    echo "Compiling for linux/$architecture"
    GOFLAGS='' CGO_ENABLED=0 GOOS=linux GOARCH=$architecture go build -trimpath -buildvcs=true -ldflags '-s -w' \
      -o "bin/release/linux_$architecture/" ./cmd/manager ./cmd/node-agent
  done
}

tool() {
  (cd hack/images && go run ./release "$@" -key "$key" -output "$output")
}

mkdir -p dist
check_vulnerabilities "$PWD/dist/vulnerabilities.txt"
rm -rf "$output" bin/release
compile
images=$(tool images -version "$version" -commit "$commit" -time "$(git show -s --format=%ct HEAD)" -registry "$registry" -builder "$builder" \
  -binaries "$PWD/bin/release")
manager=$(awk '$1 == "manager" {print $2}' <<<"$images")
agent=$(awk '$1 == "node-agent" {print $2}' <<<"$images")
make --no-print-directory install-manifest chart VERSION="$version" MANAGER_IMAGE="$manager" AGENT_IMAGE="$agent" COMPONENTS=arm64
GOFLAGS='-buildvcs=true' make --no-print-directory krew VERSION="$version"
cp dist/install.yaml "dist/chart/storage-client-operator-${version#v}.tgz" dist/krew/*"_${version}_"*.tar.gz dist/krew/storageclient.yaml dist/vulnerabilities.txt "$output"
tool checksums

printf '\n%s\n' "Release $version of commit $commit in dist/release/$version"
(cd "$output" && du -ah --apparent-size -- * | sort -k 2)
printf '%s\n' "$manager" "$agent" "$(head -n 1 dist/vulnerabilities.txt)"
[[ -n $key ]] && echo 'Signed; release.pub is the public key' || echo 'NOT SIGNED: no KEY was given'
