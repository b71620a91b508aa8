#!/bin/bash
# Fuzz every target of the module, one after the other.
#
#   scripts/fuzz.sh [TIME]    for TIME each, a duration or a number of inputs (150000x)
#   scripts/fuzz.sh list      say the targets, with their files, and run none
#
# The default is a number of inputs, because a run for a duration sometimes fails with "context
# deadline exceeded" and no input. After TIME, Go would spend up to a minute on minimizing an input.
# -fuzzminimizetime bounds that to a second, so an input that fails is hardly minimized.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-150000x}

targets=$(grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed 's/func //')
[ -n "$targets" ] || { echo "fuzz: no target found" >&2; exit 1; }
if [ "$time" = list ]; then
  echo "$targets"
  exit
fi
while IFS=: read -r file target; do
  echo "fuzz: $target in $(dirname "$file")"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1s "$(dirname "$file")"
done <<<"$targets"
