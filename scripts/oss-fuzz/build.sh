#!/bin/bash
# Build every fuzz target for OSS-Fuzz, whose image base-builder-go runs this in the repository.
#
# Not run in that image. Run with a stand-in of compile_native_go_fuzzer_v2 that finds each target
# and compiles its folder's tests as a package, as it does, but without instrumentation, and does
# not link them with libFuzzer: 34 of 35 targets compile, and FuzzResume was not tried again.
set -euo pipefail

# The builder replaces a file of the standard library, which Go refuses in the cache of modules,
# where it puts the version that go.work requires.
goroot=$(go env GOROOT)
if [[ $goroot == "$(go env GOMODCACHE)"/* ]]; then
  own=$(mktemp -d)
  cp -R --no-preserve=mode "$goroot/." "$own"
  chmod -R u+x "$own/bin" "$own/pkg/tool"
  export GOROOT=$own PATH=$own/bin:$PATH GOTOOLCHAIN=local
fi

# apart moves the tests of a folder that are outside of its package, in NAME_test, to a package of
# their own, since the builder compiles all tests of a folder as one package.
apart() { # folder
  local file
  mkdir -p "$1/fuzzed"
  echo 'package fuzzed' >"$1/fuzzed/fuzzed.go"
  [ ! -d "$1/testdata" ] || ln -s ../testdata "$1/fuzzed/testdata"
  for file in $(go list -f '{{join .XTestGoFiles " "}}' "$1"); do
    sed 's/^package .*_test$/package fuzzed/' "$1/$file" >"$1/fuzzed/$file"
    rm "$1/$file"
  done
  # The tests of the root use what this file exports to them.
  [ "$1" != . ] || mv waitqueue_test.go waitqueue.fuzzed.go
}

while IFS=: read -r file target; do
  dir=$(dirname "$file")
  [ -z "$(go list -f '{{join .XTestGoFiles " "}}' "$dir")" ] || apart "$dir"
  [ -f "$file" ] || dir=$dir/fuzzed
  name=${file#./} name=${name%_test.go}_$target
  # The builder writes a program to the folder, which may import what is internal there.
  (cd "$dir" && compile_native_go_fuzzer_v2 "$(go list .)" "$target" "${name//\//_}")
done < <(scripts/fuzz.sh list)
