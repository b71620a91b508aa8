#!/bin/bash
# Build the Redis and Valkey images of the container tests from Debian packages, for machines that reach no
# container registry: packages in, `docker import` out.
#
#   scripts/offline-images.sh               build those images that the engine lacks
#   scripts/offline-images.sh redis:8 ...   only these
#   FORCE=1 scripts/offline-images.sh       build them anew, from fresh package lists
#
# Needs apt, dpkg, tar, Debian's archive keyring and a running engine that the user may talk to; not root.
#
#   WORK       cache of packages and room to work in  (~/.cache/ratelimit-images)
#   MIRROR     Debian mirror                          (the one that this machine's apt uses)
#   SECMIRROR  security mirror, empty to leave it out (likewise)
#
# An image behaves like the official one as far as testcontainers' modules go: port 6379, all interfaces, protected-mode
# off, arguments are options of the server or a command, logs on stdout. It has busybox as /bin/sh and the
# client. It lacks the official image's modules, and the server runs as root.
#
# With CLOCKSTEP_FILE=/run/clock in a container's environment, `docker exec C clockstep -3600` steps the wall clock of its
# server (see clockstep.c; needs a C compiler here).
set -euo pipefail

# tag              family  suite
TABLE='
redis:7            redis   bookworm
redis:8            redis   trixie
valkey/valkey:8    valkey  trixie
'

apt_uri() { # pattern: the first package source of this machine's apt that matches
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u | sed 's,/$,,' | grep -m 1 -E "$1" || true
}
WORK=${WORK:-${XDG_CACHE_HOME:-$HOME/.cache}/ratelimit-images}
MIRROR=${MIRROR:-$(apt_uri '/debian$')}
MIRROR=${MIRROR:-http://deb.debian.org/debian}
SECMIRROR=${SECMIRROR-$(apt_uri '/debian-security$')}
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
ARCH=$(dpkg --print-architecture)
case $ARCH in
  amd64) TRIPLE=x86_64-linux-gnu LDSO=/lib64/ld-linux-x86-64.so.2 ;;
  arm64) TRIPLE=aarch64-linux-gnu LDSO=/lib/ld-linux-aarch64.so.1 ;;
  *) echo "unsupported architecture $ARCH" >&2; exit 1 ;;
esac
HERE=$(cd "$(dirname "$0")" && pwd)
SRC=$WORK/src.$$ DST=$WORK/rootfs.$$
trap 'rm -rf "$SRC" "$SRC.list" "$DST" "$DST.tar"' EXIT

say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }

# apt with its own state and without the machine's sources, preferences and hooks.
apt_setup() { # suite
  APTDIR=$WORK/apt/$1
  mkdir -p "$APTDIR"/{lists/partial,cache/archives/partial,debs}
  : >"$APTDIR/status"
  echo "deb [signed-by=$KEYRING] $MIRROR $1 main" >"$APTDIR/sources.list"
  [ -z "$SECMIRROR" ] || echo "deb [signed-by=$KEYRING] $SECMIRROR $1-security main" >>"$APTDIR/sources.list"
  printf '#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n' >"$APTDIR/apt.conf"
  APTO=(-o Dir::Etc::sourcelist="$APTDIR/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::Etc::preferencesparts=/dev/null -o Dir::Etc::preferences=/dev/null
        -o Dir::State="$APTDIR" -o Dir::State::lists="$APTDIR/lists" -o Dir::State::status="$APTDIR/status"
        -o Dir::Cache="$APTDIR/cache" -o APT::Architecture="$ARCH" -o APT::Architectures="$ARCH"
        -o Acquire::Languages=none -o APT::Install-Recommends=false -o APT::Sandbox::User= -qq
        -c "$APTDIR/apt.conf")
  if [ ! -e "$APTDIR/updated" ] || [ -n "${FORCE:-}" ]; then
    apt-get "${APTO[@]}" update >&2
    touch "$APTDIR/updated"
  fi
}

# "package version" of the named packages and of every library package that they depend on, directly or not.
closure() { # packages
  { printf '%s\n' "$@"
    apt-cache "${APTO[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts \
      --no-breaks --no-replaces --no-enhances "$@" |
      grep -E '^(lib|lua-)[a-z0-9.+-]+$' | grep -vE '^lib(perl|apt|debconf|pam|semanage)|-(dev|dbg)$'
  } | sort -u | xargs apt-cache "${APTO[@]}" policy |
    awk '/^[a-z0-9]/ { p = $1; sub(/:$/, "", p) } /^ +Candidate: [^(]/ { print p, $2 }'
}

unpack() { # family: its packages and their libraries into SRC
  local p v f
  closure "$1-server" "$1-tools" busybox-static >"$SRC.list"
  ( cd "$APTDIR/debs" && tr ' ' '=' <"$SRC.list" | xargs apt-get "${APTO[@]}" download >&2 )
  while read -r p v; do
    for f in "$APTDIR/debs/${p}_${v//:/%3a}"_*.deb; do
      dpkg-deb --fsys-tarfile "$f" | tar -x --keep-directory-symlink --no-same-owner -C "$SRC" \
        --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale
    done
    [ "$p" != "$1-server" ] || VERSION=$v
  done <"$SRC.list"
}

# Copy binaries from SRC to DST with the libraries that SRC's own loader finds for them.
take() { # binaries
  local bin real lib
  for bin in "$@"; do
    [ -e "$SRC$bin" ] || continue
    real=$(readlink -f "$SRC$bin")
    cp -a "$real" "$DST$(dirname "$bin")/$(basename "$real")"
    [ "$(basename "$real")" = "$(basename "$bin")" ] || ln -sf "$(basename "$real")" "$DST$bin"
    "$SRC/usr$LDSO" --inhibit-cache --library-path "$SRC/usr/lib/$TRIPLE" --list "$real" |
      { grep -oE '=> /[^ ]+' || true; } | cut -c4- | while read -r lib; do
        cp -L --preserve=mode,timestamps "$lib" "$DST/usr/lib/$TRIPLE/$(basename "$lib")"
      done
  done
}

clockstep() {
  command -v cc >/dev/null || { say "no C compiler: images without clockstep"; return 0; }
  cc -Wall -O2 -fPIC -shared -nostdlib -s -o "$DST/usr/local/lib/libclockstep.so" "$HERE/clockstep.c"
  cat >"$DST/usr/local/bin/clockstep" <<'W'
#!/bin/sh
# clockstep SECONDS: offset of the server's wall clock from the true time
n=$(( $1 * 1000000000 )) i=0 b=
while [ $i -lt 8 ]; do b="$b\\$(printf %03o $(( (n >> (8 * i)) & 255 )))"; i=$((i + 1)); done
printf "$b" | busybox dd of="${CLOCKSTEP_FILE:?}" bs=8 conv=notrunc 2>/dev/null
W
}

# The wrapper comes first in PATH and switches protected-mode off, as the official images do. An entrypoint script would not
# do: testcontainers' valkey module replaces it by plain "valkey-server".
wrapper() { # program
  cat >"$DST/usr/local/bin/$1" <<W
#!/bin/sh
real=/usr/bin/$1
if [ -n "\${CLOCKSTEP_FILE-}" ] && [ -e /usr/local/lib/libclockstep.so ]; then
  [ -s "\$CLOCKSTEP_FILE" ] || head -c 8 /dev/zero >"\$CLOCKSTEP_FILE"
  export LD_PRELOAD=/usr/local/lib/libclockstep.so
fi
case "\${1-}" in
  --version|-v|--help|-h|--check-system|--test-memory) exec "\$real" "\$@" ;;
  ''|-?*) exec "\$real" --protected-mode no "\$@" ;; # of an option given twice the later wins
esac
conf=\$1; shift # a configuration file must stay the first argument
if [ -f "\$conf" ] && grep -qiE '^[[:space:]]*protected-mode[[:space:]]' "\$conf"; then
  exec "\$real" "\$conf" "\$@"
fi
exec "\$real" "\$conf" --protected-mode no "\$@"
W
}

build() { # family suite
  local l p
  rm -rf "$SRC" "$DST"
  mkdir -p "$SRC/usr"/{lib,lib64,bin,sbin} "$DST/usr"/{lib/$TRIPLE,lib64,bin,sbin,local/bin,local/lib}
  for l in lib lib64 bin sbin; do ln -s "usr/$l" "$SRC/$l"; ln -s "usr/$l" "$DST/$l"; done
  mkdir -p "$DST"/{data,etc,proc,sys,dev,run,root}
  mkdir -m 1777 "$DST/tmp"
  chmod 777 "$DST/data"

  apt_setup "$2"
  unpack "$1"

  cp -L "$SRC/usr$LDSO" "$DST/usr$LDSO"
  take "/usr/bin/$1-server" "/usr/bin/$1-cli" "/usr/bin/$1-benchmark" "/usr/bin/$1-check-aof" "/usr/bin/$1-check-rdb"
  [ -e "$DST/usr/bin/$1-sentinel" ] || ln -s "$1-server" "$DST/usr/bin/$1-sentinel"
  cp -L "$SRC/usr/lib/$TRIPLE/libgcc_s.so.1" "$DST/usr/lib/$TRIPLE/" # loaded when a thread is cancelled
  cp -L "$SRC/bin/busybox" "$DST/usr/bin/busybox"
  for p in sh ls cat sleep kill ps env grep sed awk head tail date hostname id ip ping nc mkdir rm cp mv chmod stat wc sort true false test; do
    ln -s busybox "$DST/usr/bin/$p"
  done
  clockstep
  wrapper "$1-server"
  wrapper "$1-sentinel"
  cat >"$DST/usr/local/bin/docker-entrypoint.sh" <<W
#!/bin/sh
# As in the official image: options or a .conf file mean the server.
case "\${1-}" in
  -*|*.conf) set -- $1-server "\$@" ;;
esac
exec "\$@"
W
  chmod 755 "$DST"/usr/local/bin/*

  printf 'root:x:0:0:root:/root:/bin/sh\n%s:x:999:999::/data:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' "$1" >"$DST/etc/passwd"
  printf 'root:x:0:\n%s:x:999:\nnogroup:x:65534:\n' "$1" >"$DST/etc/group"
  echo 'hosts: files dns' >"$DST/etc/nsswitch.conf"
}

import() { # tag family
  tar -C "$DST" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "$DST.tar" .
  docker import -c 'ENV PATH=/usr/local/bin:/usr/bin:/bin' -c 'WORKDIR /data' -c 'EXPOSE 6379/tcp' \
    -c 'ENTRYPOINT ["docker-entrypoint.sh"]' -c "CMD [\"$2-server\"]" \
    -c "LABEL offline-images.package=$2-server_$VERSION" -m "$2-server $VERSION" "$DST.tar" "$1" >/dev/null
  say "$1 is $2-server $VERSION, $(du -k "$DST.tar" | cut -f1) KiB"
}

mkdir -p "$WORK"
for want in "$@"; do
  awk -v w="$want" '$1 == w { f = 1 } END { exit !f }' <<<"$TABLE" || { echo "unknown image $want; known are:$TABLE" >&2; exit 2; }
done
while read -r tag family suite; do
  [ -n "$tag" ] || continue
  [ $# -eq 0 ] || [[ " $* " == *" $tag "* ]] || continue
  if [ -z "${FORCE:-}" ] && docker image inspect "$tag" >/dev/null 2>&1; then
    say "$tag is there"
    continue
  fi
  build "$family" "$suite"
  import "$tag" "$family"
done <<<"$TABLE"
