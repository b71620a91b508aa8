#!/bin/bash
# valkey-go is rueidis under another name, and so is the store on it: backend/valkey is written from backend/rueidis.
#
#   scripts/twins.sh          fail if backend/valkey is not what would be written
#   scripts/twins.sh write    write it
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for file in backend/rueidis/*.go; do
  sed -e 's#github.com/redis/rueidis#github.com/valkey-io/valkey-go#g' \
    -e 's/\bRedisMessage\b/ValkeyMessage/g; s/\bRedisError\b/ValkeyError/g' \
    -e 's/on Redis or Valkey/on Valkey or Redis/g' \
    -e 's/\(through\|is\) rueidis\b\([^.]\|\.$\|\. \)/\1 valkey-go\2/g' \
    -e 's/rueidis/valkey/g' "$file" | gofmt >"$work/${file##*/}"
done
if [ "${1:-}" = write ]; then
  rm -f backend/valkey/*.go
  cp "$work"/*.go backend/valkey/
elif ! diff -r "$work" backend/valkey; then
  echo "backend/valkey differs from backend/rueidis: change the latter and run \"make twins\"" >&2
  exit 1
fi
