#!/bin/bash
# Release a version. Its workflow calls "build" for the tag; CI calls it for the tree.
#
#   scripts/release.sh build VERSION   write binaries of the commands for PLATFORMS (all), lists of
#                                      their components (SBOM, CycloneDX) and checksums to dist
#   scripts/release.sh tag VERSION     say which tags this commit would get, of all published modules
#   scripts/release.sh push VERSION    make these tags and push them, which starts the workflow.
#                                      CHANGELOG.md has to have the date
#   scripts/release.sh modules         say the folders of the published modules
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "$*" >&2; exit 1; }

base=github.com/truewindow/ratelimit
modules=(. otellimit grpclimit connectlimit mcplimit caddylimit backend/{mysql,postgres,sqlite} cmd)

action=${1-} version=${2-}
[ "$action" != modules ] || { printf '%s\n' "${modules[@]}"; exit; }
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?$ ]] || fail "VERSION is not such as v0.1.0"

: "${PLATFORMS:=linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64}"

build() {
  local linked=$base/cmd/internal/version.linked commit command platform os arch name
  commit=$(git rev-parse HEAD)
  rm -rf dist
  mkdir dist
  for command in ratelimit ratelimit-replay; do
    for platform in $PLATFORMS; do
      os=${platform%/*} arch=${platform#*/} name=dist/${command}_${platform/\//_}
      [ "$os" != windows ] || name=$name.exe
      CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -o "$name" \
        -ldflags "-s -w -X ${linked}Version=$version -X ${linked}Commit=$commit" "./cmd/$command"
    done
    GOWORK=off CGO_ENABLED=0 go run -trimpath \
      github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 \
      bin -json -version "$version" -output "dist/$command.cdx.json" "$name"
  done
  cp deploy/systemd/ratelimit.service dist/
  (cd dist && sha256sum -- * >../SHA256SUMS.new && mv ../SHA256SUMS.new SHA256SUMS)
}

# ready checks that this commit may have the version.
ready() {
  grep -q "^## \[${version#v}\]" CHANGELOG.md || fail "CHANGELOG.md has no section of $version"
  local module required
  for module in "${modules[@]}"; do
    while read -r required; do
      [ "$required" = "$version" ] || fail "$module requires $required of this repository"
    done < <(sed -n "s#^\s*$base[^ ]* \(v[^ ]*\).*#\1#p" "$module/go.mod")
  done
}

tags() {
  local module
  for module in "${modules[@]}"; do
    [ "$module" = . ] && echo "$version" || echo "$module/$version"
  done
}

case $action in
  build) build ;;
  tag) ready && tags ;;
  push)
    ready
    grep -Eq "^## \[${version#v}\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md ||
      fail "CHANGELOG.md has no date of $version"
    [ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
    [ "$(git rev-parse HEAD)" = "$(git ls-remote origin refs/heads/main | cut -f 1)" ] ||
      fail "this commit is not the newest of main"
    tags | while read -r tag; do git tag -a "$tag" -m "$tag"; done
    # GitHub starts no workflow for tags that are pushed more than three at once. The tag of the
    # root is pushed last and alone, so that its workflow starts when all modules have theirs.
    tags | tail -n +2 | xargs git push --atomic origin
    git push origin "$version"
    ;;
  *) fail "usage: scripts/release.sh build|tag|push VERSION, or modules" ;;
esac
