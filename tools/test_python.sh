#!/usr/bin/env bash
# Run `make test` on a CPython of a Debian release, in a root file system under build/pythons.
#
#   tools/test_python.sh VERSION [PYTEST-ARGUMENTS]
#
# Tests the tracked files with their uncommitted changes. A second run reuses the root and its .venv.
# Needs root, mmdebstrap, and the network. All mounts are private to this process and end with it.
set -euo pipefail

die() { echo "tools/test_python.sh: $*" >&2; exit 2; }

# The Debian suite whose default Python has this version.
suite_of() {
  case $1 in
    3.13) echo trixie ;;
    3.14) echo sid ;;
    *) die "no Debian suite known for CPython '$1'; expected 3.13 or 3.14" ;;
  esac
}

packages=python3,python3-venv,python3-dev,gcc,g++,make,git,ca-certificates
packages+=,openjdk-21-jre-headless # Spark
packages+=,iproute2,openssl        # network namespaces and TLS in tests

make_root() { # SUITE ROOT
  rm -rf "$2" "$2.new"
  # Snapshots of a suite are older than their expiry date.
  mmdebstrap --quiet --variant=minbase --include="$packages" \
    --aptopt='Acquire::Check-Valid-Until "false"' "$1" "$2.new"
  mv "$2.new" "$2" # a root that has this name is complete
}

# Give the root the tracked files of this tree. Files that did not change keep their times.
give_sources() { # ROOT
  local tree=$1/cqstore commit
  commit=$(git stash create)
  [ -d "$tree/.git" ] || git init --quiet "$tree"
  git push --quiet --force "$tree" "${commit:-HEAD}:refs/heads/tested"
  git -C "$tree" checkout --quiet --force --detach tested
  git -C "$tree" clean --quiet --force -d
}

bind() { # FILE ROOT [NAME]: show a file of this machine in the root
  [ -f "$1" ] || return 0
  local target=$2${3:-$1}
  mkdir -p "$(dirname "$target")"
  [ -e "$target" ] || : >"$target"
  mount --bind "$(realpath "$1")" "$target"
}

# Show the root the kernel's file systems, and how this machine reaches the package index.
mount_all() { # ROOT
  local file
  mount --bind "$1" "$1" # the root of the chroot must be a mount: tests make namespaces
  mount -t proc proc "$1/proc"
  mount --rbind /sys "$1/sys"
  mount --rbind /dev "$1/dev"
  rm -f "$1/etc/resolv.conf" # may be a link
  for file in /etc/resolv.conf /etc/hosts /etc/pip.conf \
    /etc/ssl/certs/ca-certificates.crt "${PIP_CERT-}" "${SSL_CERT_FILE-}"; do
    mountpoint --quiet "$1$file" || bind "$file" "$1"
  done
  bind ~/.config/pip/pip.conf "$1" /root/.config/pip/pip.conf
}

run_tests() { # ROOT PYTEST-ARGUMENTS
  local passed
  mapfile -t passed < <(env | grep -E '^(PIP_|SSL_CERT_FILE=|https?_proxy=|no_proxy=|CQSTORE_)')
  chroot "$1" /usr/bin/env -i "${passed[@]}" HOME=/root LANG=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    make --no-print-directory -C /cqstore test SELECT="$2"
}

versions() { # SUITE ROOT
  chroot "$2" /bin/sh -c 'python3 -V; gcc -dumpfullversion' | paste -sd ' ' |
    sed "s/Python /CPython /; s/ \([^ ]*\)$/, Debian $1, gcc \1, $(date -u +%F)/"
}

[ $# -ge 1 ] || die "usage: tools/test_python.sh VERSION [PYTEST-ARGUMENTS]"
suite=$(suite_of "$1")
[ "$(id -u)" -eq 0 ] || die "must run as root: it uses chroot and mount"
command -v mmdebstrap >/dev/null || die "mmdebstrap is not installed"
if [ -z "${IN_PRIVATE_MOUNTS-}" ]; then
  IN_PRIVATE_MOUNTS=1 exec unshare --mount "$0" "$@"
fi
cd "$(dirname "$0")/.."
root=$PWD/build/pythons/$1
mkdir -p "$(dirname "$root")"
[ -d "$root" ] || make_root "$suite" "$root"
found=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ "$found" = "$1" ] || die "Debian $suite has CPython $found now; expected $1"
give_sources "$root"
mount_all "$root"
versions "$suite" "$root"
run_tests "$root" "${2-}"
