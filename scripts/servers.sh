#!/bin/bash
# Run the tests on servers, which are in the folders of integration. While they run, print the
# progress of each folder; at the end, print how many tests ran in all, and on which servers.
#
#   scripts/servers.sh usual [FLAG]...   every folder but caddy, jobs and shipping, on the newest
#                                        servers
#   scripts/servers.sh rest [FLAG]...    the suite and the stores on other servers, on emulated ones,
#                                        and with the lowest versions of the client libraries;
#                                        shipping; the module for Caddy, and a Caddy with it; other
#                                        databases and drivers, etcd, and jobs
#
# The flags are passed to go test. Each folder is a process that starts servers of its own. The
# longest come first.
set -euo pipefail
cd "$(dirname "$0")/../integration"
part=$1
shift

RATELIMIT_PROGRESS=$(mktemp)
export RATELIMIT_PROGRESS
tail -n +1 -f "$RATELIMIT_PROGRESS" &
printer=$!
lowest=$(mktemp -d)
trap 'kill "$printer"; rm -rf "$RATELIMIT_PROGRESS" "$lowest"' EXIT
status=0

# Without the race detector, with which they take three to four times as long: the tests of scripts
# have one goroutine, the suite runs with it on memory, and in CI on other servers, and a SQLite in
# Go is very slow with it.
plain=()
for flag in "$@"; do [ "$flag" = -race ] || plain+=("$flag"); done

usual() {
  rm -rf measured
  local longest=(./stores ./faults ./commands ./cache ./service)
  { # databases last, when there are fewer others that need a processor
    # Scripts have no deadlines: they leave the processors to the others.
    nice -n 5 ${GO:-go} test -parallel=4 "${plain[@]}" ./scripts &
    local scripts=$!
    ${GO:-go} test -parallel=4 "${plain[@]}" -skip '^TestEmulated$' ./conformance || status=$?
    wait "$scripts" || status=$?
    ${GO:-go} test -parallel=3 "${plain[@]}" ./sql || status=$?
    exit "$status"
  } &
  local others=$!
  # shellcheck disable=SC2046
  ${GO:-go} test -p=2 -parallel=4 "$@" "${longest[@]}" \
    $(${GO:-go} list ./... |
      grep -v '/integration/\(conformance\|scripts\|sql\|shipping\|etcd\|jobs\|caddy\)$') || status=$?
  wait "$others" || status=$?
}

# The module requires the newest client libraries. The tests of the stores run once more with those
# that the root module requires, the lowest that work, and on Valkey 8. Of the suite, this run has
# what differs between libraries.
lowest_versions() {
  cp go.mod "$lowest/go.mod"
  cp go.sum "$lowest/go.sum"
  local libraries=(redis/go-redis/v9 redis/rueidis valkey-io/valkey-go) library version used
  for library in "${libraries[@]}"; do
    version=$(sed -n "s#^\tgithub.com/$library ##p" ../go.mod)
    ${GO:-go} mod edit -require="github.com/$library@$version" "$lowest/go.mod"
  done
  GOWORK=off ${GO:-go} mod tidy -modfile="$lowest/go.mod"
  for library in "${libraries[@]}"; do # a module may require more
    used=$(GOWORK=off ${GO:-go} list -modfile="$lowest/go.mod" -m "github.com/$library")
    grep -q "^	$used\( \|$\)" ../go.mod ||
      { echo "the lowest $library is not tested, but $used"; exit 1; }
  done
  lowest_test conformance -run '^TestConformance$/././^keys(-cached)?$'
  # rueidis and valkey-go 1.0.77 may leave a connection to a cluster open when they are closed.
  lowest_test stores -skip '^TestOpenURL$'
}

lowest_test() { # folder, flags
  local folder=$1
  shift
  GOWORK=off RATELIMIT_FULL="" RATELIMIT_IMAGES=valkey/valkey:8 ${GO:-go} test \
    -modfile="$lowest/go.mod" -parallel=4 -shuffle=on -count=1 -timeout=40m "$@" "./$folder" ||
    status=$?
}

# On Redis 7, the oldest, and on Redis 8.6 the suite runs once with each client. Debian has 8.6 in
# experimental only, so it is left out where it is not to be had.
other_servers() {
  local image
  for image in redis:7 redis:8.6; do
    if [ "$image" = redis:8.6 ] && ! have "$image" >/dev/null 2>&1; then
      echo "$image is not to be had: no test runs on it"
      continue
    fi
    RATELIMIT_IMAGES=$image ${GO:-go} test -parallel=4 "$@" \
      -run '^TestConformance$/././^keys$' ./conformance || status=$?
  done
  ${GO:-go} test -parallel=4 "$@" -run '^TestEmulated$' ./conformance || status=$?
}

have() { # image
  docker image inspect "$1" || docker pull "$1" || ../scripts/offline-images.sh "$1"
}

case $part in
usual) usual "$@" ;;
rest)
  RATELIMIT_SQL_REST=1 ${GO:-go} test -parallel=4 "${plain[@]}" -skip '^TestMistakes$' ./sql \
    ./etcd ./jobs &
  databases=$!
  (
    lowest_versions
    exit "$status"
  ) &
  lowest_of=$! # like those of the databases, these tests mostly wait
  other_servers "$@"
  ${GO:-go} test -parallel=4 "$@" ./shipping || status=$?
  ${GO:-go} -C ../caddylimit test "$@" ./... || status=$?
  ${GO:-go} test "${plain[@]}" ./caddy || status=$?
  wait "$lowest_of" || status=$?
  wait "$databases" || status=$?
  ;;
esac
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
