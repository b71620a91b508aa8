#!/bin/bash
# Fuzz every target of the module, one after the other.
#
#   scripts/fuzz.sh [TIME]    for TIME each, a duration or a number of inputs; 150000x unless said
#
# The default is a number of inputs, since a run that ends by the clock sometimes fails with
# "context deadline exceeded" and no input. Beyond TIME, Go spends up to a minute on making an input
# smaller; the limit of a second keeps a run to its time. An input that fails is then hardly made
# smaller.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-150000x}

targets=$(grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed 's/func //')
[ -n "$targets" ] || { echo "fuzz: no target found" >&2; exit 1; }
while IFS=: read -r file target; do
  echo "fuzz: $target in $(dirname "$file")"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1s "$(dirname "$file")"
done <<<"$targets"
