#!/bin/bash
# Fuzz every target of the module, one after the other.
#
#   scripts/fuzz.sh [TIME]    for TIME each, 10s unless said
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}

targets=$(grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed 's/func //')
[ -n "$targets" ] || { echo "fuzz: no target found" >&2; exit 1; }
while IFS=: read -r file target; do
  echo "fuzz: $target in $(dirname "$file")"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$(dirname "$file")"
done <<<"$targets"
