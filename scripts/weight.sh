#!/bin/bash
# Count the go.sum lines that an import of this module adds for a user, by building temporary
# modules that import it. Fail above the bounds below.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
module=$(sed -n 's/^module //p' "$root/go.mod")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

weigh() { # bound, packages below the module's root
  local bound=$1 package lines
  shift
  rm -rf "$work/consumer"
  mkdir "$work/consumer"
  cd "$work/consumer"
  {
    echo 'package main'
    for package in "$@"; do echo "import _ \"$module${package#.}\""; done
    echo 'func main() {}'
  } >main.go
  printf 'module consumer\n\n%s\n' "$(grep '^go ' "$root/go.mod")" >go.mod
  for package in "" /cmd/ratelimit /grpclimit /otellimit; do
    go mod edit "-replace=$module$package=$root$package"
  done
  go mod tidy 2>"$work/log" && go build . 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
  lines=0
  [ ! -e go.sum ] || lines=$(wc -l <go.sum)
  echo "weight: $lines go.sum lines for $*, at most $bound"
  [ "$lines" -le "$bound" ] || failed=1
}

weigh 0 . ./algorithm ./backend ./backend/memory ./backend/transactional ./clientip ./conformance \
  ./httplimit ./httplimit/headers ./layer ./topkeys ./upstream
weigh 20 ./backend/redis
weigh 14 ./backend/rueidis
weigh 14 ./backend/valkey
weigh 18 ./grpclimit
weigh 22 ./otellimit
weigh 71 ./cmd/ratelimit/daemon
exit $failed
