#!/bin/bash
# Print, for each package below, the share of its statements that all tests but the slow ones run.
# The tests on servers run on one type of server. Fail if a package has less than MINIMUM percent.
# The suite (conformance) and the daemon are not measured.
#
#   MINIMUM   percent   (90)
#   PROFILE   file for the profile, for "go tool cover" (a temporary file)
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
profile=${PROFILE:-$work/profile}

# These tests take long, and other tests run the same statements.
slow=(
  CacheRaces 'Clock.*' ClusterFailover ClusterNodeComesBack Compose DegradedOutage Exactness
  Faults FaultsBreaker 'Guard(Calls|Reads|Same|Sizes)' Image InexactOnServers LeastRights
  LuaStepOnLargeLogs MillionDemands PausedServerDelaysNoOther Quickstart ReplayLargeLog SameTakes
  SecretsStaySecret SentinelFailover 'Serve([A-Z].*)?' SlotMigration StoppedProcess
)
skip="^Test($(IFS='|'; echo "${slow[*]}"))$"
measured=$(go list . ./algorithm/... ./backend/... ./clientip ./dashboard ./driver ./edge \
  ./connectlimit/... ./grpclimit ./mcplimit ./httplimit/... ./layer/... ./otellimit ./shadow ./topkeys ./upstream | paste -sd,)
measured+=,github.com/truewindow/ratelimit/caddylimit # not in go.work
export RATELIMIT_IMAGES=${RATELIMIT_IMAGES:-valkey/valkey:9}

cover() { # directory, packages, profile
  go -C "$1" test -count=1 -timeout=40m -p=2 -parallel=3 -skip "$skip" -coverpkg="$measured" \
    -coverprofile="$3" "$2" >"$work/log" 2>&1 ||
    { grep -v "coverage: .* of statements" "$work/log"; exit 1; }
}
cover . work "$work/units"
cover caddylimit ./... "$work/caddy"
cover integration ./... "$work/servers"
{ cat "$work/units"; tail -qn +2 "$work/caddy" "$work/servers"; } >"$profile"

# The profile has each block once for every test binary. A block was run if any of them ran it.
awk -v minimum="${MINIMUM:-90}" '
  FNR > 1 {
    statements[$1] = $2
    if ($3 > 0) run[$1] = 1
  }
  END {
    for (block in statements) {
      package = block
      sub("/[^/]*$", "", package)
      total[package] += statements[block]
      if (block in run) covered[package] += statements[block]
    }
    for (package in total) {
      percent = 100 * covered[package] / total[package]
      low = percent < minimum
      failed = failed || low
      note = low ? ", less than " minimum " %" : ""
      printf "cover: %5.1f %% of %s%s\n", percent, package, note | "sort -k 5"
    }
    close("sort -k 5")
    exit failed
  }' "$profile"
