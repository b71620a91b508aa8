#!/bin/bash
# Run the tests on servers, which are in the folders of integration and in examples/postgres. While
# they run, print the progress of each folder; at the end, print how many tests ran in all, and on
# which servers. The arguments are passed to go test.
#
# Each folder is a process that starts servers of its own. Two run at the same time, with three
# tests each: with more, tests of faults fail on a small machine. The two that take longest are the
# first.
set -euo pipefail
cd "$(dirname "$0")/../integration"

RATELIMIT_PROGRESS=$(mktemp)
export RATELIMIT_PROGRESS
tail -n +1 -f "$RATELIMIT_PROGRESS" &
printer=$!
lowest=$(mktemp -d)
trap 'kill "$printer"; rm -rf "$RATELIMIT_PROGRESS" "$lowest"' EXIT

rm -rf measured
status=0

# The tests of the stores run once more with the versions of the client libraries that the root
# module requires, the lowest that work, and on Valkey 8. This module has the newest libraries, and
# its other tests run on Valkey 9. Of the suite, this run has what differs between libraries.
cp go.mod "$lowest/go.mod"
cp go.sum "$lowest/go.sum"
for library in redis/go-redis/v9 redis/rueidis valkey-io/valkey-go; do
  version=$(sed -n "s#^\tgithub.com/$library ##p" ../go.mod)
  ${GO:-go} mod edit -require="github.com/$library@$version" "$lowest/go.mod"
done
GOWORK=off ${GO:-go} mod tidy -modfile="$lowest/go.mod"
for library in redis/go-redis/v9 redis/rueidis valkey-io/valkey-go; do # a module may require more
  used=$(GOWORK=off ${GO:-go} list -modfile="$lowest/go.mod" -m "github.com/$library")
  grep -q "^	$used\( \|$\)" ../go.mod ||
    { echo "the lowest $library is not tested, but $used"; exit 1; }
done
lowest_test() { # folder, tests
  GOWORK=off RATELIMIT_FULL="" RATELIMIT_IMAGES=valkey/valkey:8 ${GO:-go} test \
    -modfile="$lowest/go.mod" -parallel=3 -shuffle=on -count=1 -timeout=40m -run "$2" "./$1" ||
    status=$?
}
lowest_test conformance '^TestConformance$/././^keys(-cached)?$'
lowest_test stores .

# On Redis 8.6 the suite runs once with each client, and no other test. Debian has it in
# experimental only, so it is left out where it is not to be had.
have() { # image
  docker image inspect "$1" || docker pull "$1" || ../scripts/offline-images.sh "$1"
}
if have redis:8.6 >/dev/null 2>&1; then
  RATELIMIT_IMAGES=redis:8.6 ${GO:-go} test -parallel=3 "$@" \
    -run '^TestConformance$/^redis:8\.6$/./^keys$' ./conformance || status=$?
else
  echo "redis:8.6 is not to be had: no test runs on it"
fi

# The tests of scripts compare one call after the other with Go, and take three times as long with
# the race detector.
plain=()
for flag in "$@"; do [ "$flag" = -race ] || plain+=("$flag"); done
${GO:-go} test -parallel=3 "${plain[@]}" ./scripts &
scripts=$!
${GO:-go} test -parallel=3 "$@" ./conformance || status=$?
wait "$scripts" || status=$?
# shellcheck disable=SC2046
${GO:-go} test -p=2 -parallel=3 "$@" \
  $(${GO:-go} list ./... | grep -v '/integration/\(conformance\|scripts\|shipping\)$') || status=$?
# This builds an image, which takes the whole machine for minutes where Docker lacks that of Go.
${GO:-go} test -parallel=3 "$@" ./shipping || status=$?
${GO:-go} -C ../examples test -parallel=3 "$@" -bench Store -benchtime 1x ./postgres || status=$?
sleep 1 # for tail

reports=$(grep -E ': [0-9]+ tests on servers ran' "$RATELIMIT_PROGRESS" || true)
on=$(sed -n 's/.* ran on \([^;]*\);.*/\1/p' <<<"$reports" | sed 's/, /\n/g' | sort -u |
  paste -sd, | sed 's/,/, /g')
awk -v on="${on:+ on $on}" -v measured="$PWD/measured" '
  match($0, /: [0-9]+ tests/) { tests += substr($0, RSTART + 2); time = $1 }
  match($0, /; [0-9]+ skipped/) { skipped += substr($0, RSTART + 2) }
  END {
    printf "%s %d tests on servers ran%s; %d skipped; measurements are in %s\n",
      time, tests, on, skipped, measured
  }
' <<<"$reports"
exit "$status"
