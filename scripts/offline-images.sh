#!/bin/bash
# Build the images that the tests use, of Redis, Valkey, PostgreSQL, MariaDB, MySQL, etcd, nginx,
# Caddy, HAProxy, Prometheus and Chromium, from Debian packages, and of Go from the machine's own,
# where no container registry can be reached. The tests call this script themselves; it takes about
# half a minute.
#
#   scripts/offline-images.sh               build the images that Docker lacks, but the large ones
#   scripts/offline-images.sh redis:8 ...   only these
#
# It needs Debian with apt, the archive's keyring, and a Docker engine that the user may use; it
# does not need root. The packages come from the mirrors in the machine's own apt sources, whatever
# Debian release the machine runs. They are cached in the directory WORK
# (~/.cache/ratelimit-images).
#
# The images work like the official ones:
#
#   Redis, Valkey  port 6379 on all interfaces, protected mode off, the log on stdout; arguments are
#                  options of the server or a command; with the client, without modules
#   nginx, Caddy   the configuration is /etc/nginx/nginx.conf, /etc/caddy/Caddyfile; nginx has curl
#   HAProxy        the configuration is /usr/local/etc/haproxy/haproxy.cfg
#   Prometheus     the entrypoint is prometheus; with promtool
#   PostgreSQL     one database and one user, postgres, with the password POSTGRES_PASSWORD; runs as
#                  that user, while the others run as root
#   MariaDB, MySQL one database, test, and one user, root, with the password MARIADB_ROOT_PASSWORD
#                  or MYSQL_ROOT_PASSWORD
#   etcd           the command etcd, which listens on the loopback interface unless its options say
#                  otherwise; with etcdctl
#   Go             with git, the machine's certificate authorities, and no C compiler
#   Chromium       the headless shell, on port 9222; one family of fonts
#
# All have busybox as /bin/sh.
set -euo pipefail

# tag                    family      suite
TABLE='
redis:7                  redis       bookworm
redis:8                  redis       trixie
redis:8.6                redis       experimental
valkey/valkey:8          valkey      trixie
valkey/valkey:9          valkey      sid
nginx:1                  nginx       trixie
caddy:2                  caddy       trixie
haproxy:3.0              haproxy     trixie
prom/prometheus:v2.53.3  prometheus  trixie
postgres:15              postgres    bookworm
postgres:17              postgres    trixie
mariadb:10.11            mariadb     bookworm
mariadb:11.8             mariadb     trixie
mysql:9                  mysql       sid
quay.io/coreos/etcd:v3.5.16  etcd    trixie
golang:1.26              golang      trixie
chromedp/headless-shell:stable  chromium  trixie
'

say() { printf '%s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

for command in apt-get apt-cache dpkg-deb tar flock docker; do
  command -v "$command" >/dev/null || fail "the images cannot be built here: there is no $command"
done
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$KEYRING" ] || fail "the images cannot be built here: there is no $KEYRING"
ARCH=$(dpkg --print-architecture)
case $ARCH in
  amd64) TRIPLE=x86_64-linux-gnu LDSO=/lib64/ld-linux-x86-64.so.2 ;;
  arm64) TRIPLE=aarch64-linux-gnu LDSO=/lib/ld-linux-aarch64.so.1 ;;
  *) fail "the images cannot be built here: unsupported architecture $ARCH" ;;
esac

for want in "$@"; do
  awk -v w="$want" '$1 == w { f = 1 } END { exit !f }' <<<"$TABLE" ||
    fail "$want is not in the table of images in scripts/offline-images.sh"
done

WORK=${WORK:-${XDG_CACHE_HOME:-$HOME/.cache}/ratelimit-images}
SRC=$WORK/src DST=$WORK/rootfs
mkdir -p "$WORK"
exec 9>"$WORK/lock"
flock 9 # another run may be building the same images
trap 'rm -rf "$SRC" "$SRC.list" "$DST" "$DST.tar"' EXIT

# The hooks of Docker's Debian images would delete the packages.
cat >"$WORK/apt.conf" <<'W'
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
W

mirrors() { # [option of apt-get]...: "label URI" of each Debian source of this machine
  apt-get -c "$WORK/apt.conf" "$@" indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' \
    'Created-By: Packages' |
    awk -F '|' '$1 == "Debian" { gsub(" ", "-", $2); print $2, $3 }' | sort -u
}

# find_mirrors sets MIRROR and SECMIRROR. apt reports the origin of a source only if it has the
# source's lists.
find_mirrors() {
  local all lists=$WORK/apt/machine
  all=$(mirrors)
  if [ -z "$all" ]; then
    mkdir -p "$lists/partial"
    apt-get -qq -c "$WORK/apt.conf" -o Dir::State::lists="$lists" update >&2 || true
    all=$(mirrors -o Dir::State::lists="$lists")
  fi
  MIRROR=$(awk '$1 == "Debian" { print $2; exit }' <<<"$all")
  SECMIRROR=$(awk '$1 == "Debian-Security" { print $2; exit }' <<<"$all")
  [ -n "$MIRROR" ] || fail "the images cannot be built here: apt has no Debian source that answers"
}

# apt_setup prepares apt with a state of its own, without the machine's sources, preferences and
# hooks.
apt_setup() { # suite
  APTDIR=$WORK/apt/$1
  mkdir -p "$APTDIR"/{lists/partial,cache/archives/partial,debs}
  : >"$APTDIR/status"
  echo "deb [signed-by=$KEYRING] $MIRROR $1 main" >"$APTDIR/sources.list"
  case $1 in
    sid) ;; # it has no security suite
    experimental) echo "deb [signed-by=$KEYRING] $MIRROR sid main" >>"$APTDIR/sources.list" ;;
    *) [ -z "$SECMIRROR" ] ||
      echo "deb [signed-by=$KEYRING] $SECMIRROR $1-security main" >>"$APTDIR/sources.list" ;;
  esac
  APTO=(-o Dir::Etc::sourcelist="$APTDIR/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::Etc::preferencesparts=/dev/null -o Dir::Etc::preferences=/dev/null
        -o Dir::State="$APTDIR" -o Dir::State::lists="$APTDIR/lists"
        -o Dir::State::status="$APTDIR/status"
        -o Dir::Cache="$APTDIR/cache" -o APT::Architecture="$ARCH" -o APT::Architectures="$ARCH"
        -o Acquire::Languages=none -o APT::Install-Recommends=false -o APT::Default-Release="$1"
        -qq -c "$WORK/apt.conf")
  apt-get "${APTO[@]}" update >&2
}

# closure prints "package version" of the named packages and of every library package that they
# depend on, directly or indirectly.
closure() { # packages
  { printf '%s\n' "$@"
    apt-cache "${APTO[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts \
      --no-breaks --no-replaces --no-enhances "$@" |
      grep -E '^(lib|lua-)[a-z0-9.+-]+$' |
      grep -vE '^lib(perl|apt|debconf|pam-|semanage|llvm)|-(dev|dbg)$'
  } | sort -u | xargs apt-cache "${APTO[@]}" policy |
    awk '/^[a-z0-9]/ { p = $1; sub(/:$/, "", p) } /^ +Candidate: [^(]/ { print p, $2 }'
}

# recipe sets the PACKAGES and BINARIES of a family, and MAIN, the package whose version counts.
recipe() { # family tag
  case $1 in
    nginx)
      MAIN=nginx PACKAGES=(nginx nginx-common curl)
      BINARIES=(/usr/sbin/nginx /usr/bin/curl) ;;
    caddy) MAIN=caddy PACKAGES=(caddy) BINARIES=(/usr/bin/caddy) ;;
    haproxy) MAIN=haproxy PACKAGES=(haproxy) BINARIES=(/usr/sbin/haproxy) ;;
    prometheus)
      MAIN=prometheus PACKAGES=(prometheus promtool)
      BINARIES=(/usr/bin/prometheus /usr/bin/promtool) ;;
    postgres)
      MAJOR=${2#*:}
      MAIN=postgresql-$MAJOR PACKAGES=("postgresql-$MAJOR" "postgresql-client-$MAJOR" tzdata)
      BINARIES=("/usr/lib/postgresql/$MAJOR/bin/"{postgres,initdb,psql}) ;;
    mariadb)
      MAIN=mariadb-server-core
      PACKAGES=(mariadb-server-core mariadb-client-core)
      BINARIES=(/usr/sbin/mariadbd /usr/bin/mariadb /usr/bin/my_print_defaults /usr/bin/resolveip)
      ;;
    mysql)
      MAIN=mysql-server-core PACKAGES=(mysql-server-core mysql-client-core)
      BINARIES=(/usr/sbin/mysqld /usr/bin/mysql) ;;
    etcd)
      MAIN=etcd-server PACKAGES=(etcd-server etcd-client)
      BINARIES=(/usr/bin/etcd /usr/bin/etcdctl) ;;
    golang) MAIN=git PACKAGES=(git) BINARIES=(/usr/bin/git) ;;
    chromium)
      MAIN=chromium-headless-shell
      PACKAGES=(chromium-headless-shell chromium-common fontconfig-config fonts-dejavu-core socat)
      BINARIES=(/usr/lib/chromium/chromium-headless-shell /usr/bin/socat) ;;
    *)
      MAIN=$1-server PACKAGES=("$1-server" "$1-tools")
      BINARIES=("/usr/bin/$1-server" "/usr/bin/$1-cli" "/usr/bin/$1-benchmark"
                "/usr/bin/$1-check-aof" "/usr/bin/$1-check-rdb") ;;
  esac
}

unpack() { # the packages of the recipe and their libraries into SRC
  local p v f
  closure "${PACKAGES[@]}" busybox-static >"$SRC.list"
  ( cd "$APTDIR/debs" && tr ' ' '=' <"$SRC.list" | xargs apt-get "${APTO[@]}" download >&2 )
  while read -r p v; do
    for f in "$APTDIR/debs/${p}_${v//:/%3a}"_*.deb; do
      dpkg-deb --fsys-tarfile "$f" | tar -x --keep-directory-symlink --no-same-owner -C "$SRC" \
        --exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale
    done
    [ "$p" != "$MAIN" ] || VERSION=$v
  done <"$SRC.list"
}

# take copies binaries from SRC to DST, with the libraries that SRC's own loader finds for them.
take() { # binaries
  local bin real lib libs=$SRC/usr/lib/$TRIPLE
  libs=$libs:$libs/pulseaudio
  for bin in "$@"; do
    [ -e "$SRC$bin" ] || continue
    real=$(readlink -f "$SRC$bin")
    mkdir -p "$DST$(dirname "$bin")"
    cp -a "$real" "$DST$(dirname "$bin")/$(basename "$real")"
    [ "$(basename "$real")" = "$(basename "$bin")" ] || ln -sf "$(basename "$real")" "$DST$bin"
    "$SRC/usr$LDSO" --inhibit-cache --library-path "$libs" --list "$real" |
      { grep -oE '=> /[^ ]+' || true; } | cut -c4- | while read -r lib; do
        cp -L --preserve=mode,timestamps "$lib" "$DST/usr/lib/$TRIPLE/$(basename "$lib")"
      done
  done
}

finish_server() { # redis or valkey
  [ -e "$DST/usr/bin/$1-sentinel" ] || ln -s "$1-server" "$DST/usr/bin/$1-sentinel"
  cat >"$DST/usr/local/bin/docker-entrypoint.sh" <<W
#!/bin/sh
# As in the official image, options alone start the server, and protected mode is off.
case "\${1-}" in
  -*) set -- $1-server "\$@" ;;
esac
if [ "\${1-}" = $1-server ]; then
  shift
  set -- $1-server --protected-mode no "\$@" # if an option is given twice, the later one counts
fi
exec "\$@"
W
  CHANGES=(-c 'EXPOSE 6379/tcp' -c "CMD [\"$1-server\"]")
}

finish_nginx() {
  mkdir -p "$DST"/etc/nginx/conf.d "$DST"/var/{log,lib,cache}/nginx
  cp "$SRC"/etc/nginx/{mime.types,fastcgi_params,uwsgi_params,scgi_params,proxy_params} \
    "$DST/etc/nginx/"
  printf 'events {}\nhttp {\n  include mime.types;\n  include conf.d/*.conf;\n}\n' \
    >"$DST/etc/nginx/nginx.conf"
  ln -s /dev/stdout "$DST/var/log/nginx/access.log"
  ln -s /dev/stderr "$DST/var/log/nginx/error.log"
  plain_entrypoint
  CHANGES=(-c 'EXPOSE 80/tcp' -c 'CMD ["nginx", "-g", "daemon off;"]')
}

finish_caddy() {
  mkdir -p "$DST"/etc/caddy "$DST"/config "$DST"/srv
  printf ':80\nrespond "Caddy works"\n' >"$DST/etc/caddy/Caddyfile"
  plain_entrypoint
  CHANGES=(-c 'ENV XDG_CONFIG_HOME=/config XDG_DATA_HOME=/data' -c 'EXPOSE 80/tcp'
           -c 'CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]')
}

finish_haproxy() {
  mkdir -p "$DST/usr/local/etc/haproxy"
  plain_entrypoint
  CHANGES=(-c 'EXPOSE 80/tcp'
           -c 'CMD ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]')
}

finish_prometheus() {
  mkdir -p "$DST/etc/prometheus" "$DST/prometheus"
  cp "$SRC/etc/prometheus/prometheus.yml" "$DST/etc/prometheus/"
  plain_entrypoint
  local config=--config.file=/etc/prometheus/prometheus.yml data=--storage.tsdb.path=/prometheus
  CHANGES=(-c 'EXPOSE 9090/tcp' -c 'ENTRYPOINT ["prometheus"]' -c "CMD [\"$config\", \"$data\"]")
}

finish_postgres() {
  mkdir -p "$DST/usr/share" "$DST/var/lib/postgresql" "$DST/run/postgresql"
  ln -s /run "$DST/var/run"
  cp -a "$SRC/usr/lib/postgresql/$MAJOR/lib" "$DST/usr/lib/postgresql/$MAJOR/"
  rm -rf "$DST/usr/lib/postgresql/$MAJOR"/lib/{bitcode,llvmjit*}
  cp -a "$SRC"/usr/share/{postgresql,zoneinfo} "$DST/usr/share/"
  ln -s "../lib/postgresql/$MAJOR/bin/"{postgres,initdb,psql} "$DST/usr/bin/"
  chmod 777 "$DST/var/lib/postgresql" "$DST/run/postgresql"
  cat >"$DST/usr/local/bin/docker-entrypoint.sh" <<'W'
#!/bin/sh
# As in the official image, options alone start the server; the first start makes the database.
case "${1-}" in
  -*) set -- postgres "$@" ;;
esac
if [ "${1-}" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
  : "${POSTGRES_PASSWORD:?the password of the user postgres is not set}"
  printf '%s\n' "$POSTGRES_PASSWORD" >/tmp/password
  initdb -U postgres -A scram-sha-256 --pwfile=/tmp/password -E UTF8 --no-locale --no-sync || exit 1
  rm /tmp/password
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  echo "listen_addresses = '*'" >>"$PGDATA/postgresql.conf"
fi
exec "$@"
W
  CHANGES=(-c 'USER postgres' -c 'ENV PGDATA=/var/lib/postgresql/data' -c 'EXPOSE 5432/tcp'
           -c 'CMD ["postgres"]')
}

finish_mariadb() {
  mkdir -p "$DST"/usr/share "$DST"/var/lib/mysql "$DST"/run/mysqld
  ln -s /run "$DST/var/run"
  cp -a "$SRC"/usr/share/m[ay]* "$DST/usr/share/" # mysql or mariadb
  cp -a "$SRC/usr/bin/mariadb-install-db" "$DST/usr/bin/"
  cat >"$DST/usr/local/bin/docker-entrypoint.sh" <<'W'
#!/bin/sh
# As in the official image, options alone start the server; the first start makes the database.
case "${1-}" in
  -*) set -- mariadbd "$@" ;;
esac
if [ "${1-}" = mariadbd ] && [ ! -d /var/lib/mysql/mysql ]; then
  : "${MARIADB_ROOT_PASSWORD:?the password of the user root is not set}"
  mariadb-install-db --user=root --datadir=/var/lib/mysql --skip-test-db \
    --auth-root-authentication-method=normal >/dev/null || exit 1
  cat >/tmp/init.sql <<SQL
CREATE DATABASE IF NOT EXISTS test;
CREATE OR REPLACE USER root@'%' IDENTIFIED BY '$MARIADB_ROOT_PASSWORD';
GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;
SQL
  set -- "$@" --init-file=/tmp/init.sql
fi
exec "$@" --user=root
W
  CHANGES=(-c 'EXPOSE 3306/tcp' -c 'CMD ["mariadbd"]')
}

finish_mysql() {
  mkdir -p "$DST"/usr/share "$DST"/var/lib/{mysql,mysql-files} "$DST"/run/mysqld
  ln -s /run "$DST/var/run"
  cp -a "$SRC"/usr/share/mysql* "$DST/usr/share/"
  cat >"$DST/usr/local/bin/docker-entrypoint.sh" <<'W'
#!/bin/sh
# As in the official image, options alone start the server; the first start makes the database.
case "${1-}" in
  -*) set -- mysqld "$@" ;;
esac
if [ "${1-}" = mysqld ] && [ ! -d /var/lib/mysql/mysql ]; then
  : "${MYSQL_ROOT_PASSWORD:?the password of the user root is not set}"
  mysqld --initialize-insecure --user=root --datadir=/var/lib/mysql || exit 1
  cat >/tmp/init.sql <<SQL
CREATE DATABASE test;
CREATE USER root@'%' IDENTIFIED BY '$MYSQL_ROOT_PASSWORD';
GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;
SQL
  set -- "$@" --init-file=/tmp/init.sql
fi
exec "$@" --user=root
W
  CHANGES=(-c 'EXPOSE 3306/tcp' -c 'CMD ["mysqld"]')
}

finish_etcd() {
  plain_entrypoint
  CHANGES=(-c 'EXPOSE 2379/tcp 2380/tcp' -c 'CMD ["etcd"]')
}

finish_golang() {
  local root toolchain=local
  case $(GOTOOLCHAIN=local go env GOVERSION) in
    go1.26*) ;;
    *) toolchain=go1.26.0 ;;
  esac
  root=$(cd / && GOTOOLCHAIN=$toolchain go env GOROOT)
  mkdir -p "$DST"/usr/local/go "$DST"/go "$DST"/etc/ssl/certs
  cp -rL "$root"/{bin,lib,pkg,src,VERSION,go.env} "$DST/usr/local/go/"
  cp -L "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" \
    "$DST/etc/ssl/certs/ca-certificates.crt"
  # With the modules and the compiled packages of the command, to build it takes seconds.
  ( cd "$(dirname "${BASH_SOURCE[0]}")/.."
    export GOMODCACHE=$DST/go/pkg/mod GOCACHE=$DST/root/.cache/go-build GOFLAGS=-modcacherw \
      GOTOOLCHAIN=$toolchain CGO_ENABLED=0 \
      GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
    go build -trimpath -o /dev/null ./cmd/ratelimit )
  MTIME=2100-01-01 # go writes the time of use to cached files that are older than an hour
  MAIN=go VERSION=$(sed -n 's/^go//p;q' "$root/VERSION")
  plain_entrypoint
  CHANGES=(-c 'ENV PATH=/usr/local/go/bin:/usr/bin:/bin GOPATH=/go GOTOOLCHAIN=local'
           -c 'WORKDIR /go' -c 'CMD ["sh"]')
}

finish_chromium() {
  cp -a "$SRC"/usr/lib/chromium/*.{pak,bin,dat} "$DST/usr/lib/chromium/"
  cp -a "$SRC"/etc/fonts "$DST/etc/"
  mkdir -p "$DST"/usr/share
  cp -a "$SRC"/usr/share/{fonts,fontconfig} "$DST/usr/share/"
  cat >"$DST/usr/local/bin/docker-entrypoint.sh" <<'W'
#!/bin/sh
# As in the official image, arguments are options of the browser, which listens on 127.0.0.1 only.
socat TCP4-LISTEN:9222,fork TCP4:127.0.0.1:9223 &
exec /usr/lib/chromium/chromium-headless-shell --no-sandbox --disable-gpu --disable-dev-shm-usage \
  --remote-debugging-port=9223 "$@"
W
  CHANGES=(-c 'ENV HOME=/tmp' -c 'EXPOSE 9222/tcp')
}

plain_entrypoint() {
  printf '#!/bin/sh\nexec "$@"\n' >"$DST/usr/local/bin/docker-entrypoint.sh"
}

build() { # family suite tag
  local l p
  rm -rf "$SRC" "$DST"
  mkdir -p "$SRC/usr"/{lib,lib64,bin,sbin}
  mkdir -p "$DST/usr"/{lib/$TRIPLE,lib64,bin,sbin,local/bin,local/lib}
  for l in lib lib64 bin sbin; do ln -s "usr/$l" "$SRC/$l"; ln -s "usr/$l" "$DST/$l"; done
  mkdir -p "$DST"/{data,etc,proc,sys,dev,run,root}
  mkdir -m 1777 "$DST/tmp"
  chmod 777 "$DST/data"

  apt_setup "$2"
  recipe "$1" "$3"
  unpack
  case $1-$VERSION in
    redis-*:"${3#*:}".* | valkey-"${3#*:}".* | etcd-"${3#*:v}"-*) ;;
    redis-* | valkey-* | etcd-*) fail "$3 cannot be built: $2 has $MAIN $VERSION" ;;
  esac

  cp -L "$SRC/usr$LDSO" "$DST/usr$LDSO"
  take "${BINARIES[@]}"
  [ ! -e "$SRC/usr/lib/$TRIPLE/libgcc_s.so.1" ] || # loaded when a thread is cancelled
    cp -L "$SRC/usr/lib/$TRIPLE/libgcc_s.so.1" "$DST/usr/lib/$TRIPLE/"
  cp -L "$SRC/bin/busybox" "$DST/usr/bin/busybox"
  for p in sh ls cat sleep kill ps env grep sed awk head tail date hostname id ip ping nc \
    mkdir rm cp mv chmod chown stat wc sort true false test basename dirname mktemp expr; do
    ln -s busybox "$DST/usr/bin/$p"
  done
  MTIME=@0
  case $1 in
    nginx) finish_nginx ;;
    caddy) finish_caddy ;;
    haproxy) finish_haproxy ;;
    prometheus) finish_prometheus ;;
    postgres) finish_postgres ;;
    mariadb) finish_mariadb ;;
    mysql) finish_mysql ;;
    etcd) finish_etcd ;;
    golang) finish_golang ;;
    chromium) finish_chromium ;;
    *) finish_server "$1" ;;
  esac
  chmod 755 "$DST"/usr/local/bin/*

  {
    echo root:x:0:0:root:/root:/bin/sh
    echo "$1:x:999:999::/data:/bin/sh"
    echo nobody:x:65534:65534::/:/bin/false
  } >"$DST/etc/passwd"
  printf 'root:x:0:\n%s:x:999:\nnogroup:x:65534:\n' "$1" >"$DST/etc/group"
  echo 'hosts: files dns' >"$DST/etc/nsswitch.conf"
}

import() { # tag
  tar -C "$DST" --sort=name --owner=0 --group=0 --numeric-owner --mtime="$MTIME" -cf "$DST.tar" .
  docker import -c 'ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/bin' -c 'WORKDIR /data' \
    -c 'ENTRYPOINT ["docker-entrypoint.sh"]' "${CHANGES[@]}" \
    -c "LABEL offline-images.package=${MAIN}_$VERSION" -m "$MAIN $VERSION" \
    "$DST.tar" "$1" >/dev/null
  say "$1 is $MAIN $VERSION"
}

find_mirrors
while read -r tag family suite; do
  [ -n "$tag" ] || continue
  if [ $# -eq 0 ]; then
    case $family in golang | chromium) continue ;; esac # one folder of tests uses each
  else
    [[ " $* " == *" $tag "* ]] || continue
  fi
  docker image inspect "$tag" >/dev/null 2>&1 && continue
  build "$family" "$suite" "$tag"
  import "$tag"
done <<<"$TABLE"
