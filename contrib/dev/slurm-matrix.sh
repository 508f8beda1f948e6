#!/bin/bash
# tests/slurm on the Slurm of other Debian releases, each in a chroot that debootstrap makes once:
#   slurm-matrix.sh [SUITE...] [-- PYTEST_ARGUMENTS]     trixie (24.11) and sid (the newest) without SUITE
# Chroots are kept in $SLURMGPU_MATRIX_DIR (/var/tmp/slurmgpu-matrix). What was seen is left in $SLURMGPU_MATRIX_OUT
# (docs/make_scenarios.py takes it). Needs root on Debian; mirror, certificates and pip's index are the machine's own.
set -euo pipefail
cd "$(dirname "$0")/../.."
source_dir=$PWD
cache=${SLURMGPU_MATRIX_DIR:-/var/tmp/slurmgpu-matrix}
out=${SLURMGPU_MATRIX_OUT:-$cache/out}
packages=slurmctld,slurmd,slurmdbd,slurm-client,munge,mariadb-server,iproute2,procps,strace
packages+=,python3,python3-venv,gcc,libc6-dev,ca-certificates,git,make

say() { printf '%s\n' "slurm-matrix: $*" >&2; }
die() { say "$*"; exit 2; }

suites=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do suites+=("$1"); shift; done
[ $# = 0 ] || shift
[ ${#suites[@]} -gt 0 ] || suites=(trixie sid)
[ "$(id -u)" = 0 ] || die "needs root"
command -v apt-get >/dev/null || die "needs Debian: apt-get is missing"
command -v debootstrap >/dev/null || apt-get install -y -qq --no-install-recommends debootstrap >/dev/null ||
    die "debootstrap is missing and cannot be installed"

mirror() { # the machine's own, without what it has for security and updates
    apt-get indextargets --format '$(REPO_URI) $(CODENAME)' | awk '$2 !~ /-/ && $1 ~ /debian\/?$/ {print $1; exit}'
}

make_chroot() { # SUITE: made whole or not at all
    local root=$cache/$1
    [ ! -e "$root/.ready" ] || return 0
    rm -rf "$root"
    mkdir -p "$root"
    say "making $root"
    # No service of a package starts: the policy is there before the packages are.
    debootstrap --variant=minbase --include=ca-certificates "$1" "$root" "$(mirror)" >"$cache/$1.log" 2>&1 ||
        { tail -3 "$cache/$1.log" >&2; die "debootstrap $1 failed"; }
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    for file in /etc/apt/apt.conf.d/*; do
        ! grep -q -i -E 'proxy|verify|no-dep11|acquire' "$file" || cp "$file" "$root/etc/apt/apt.conf.d/"
    done
    inside "$1" "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends ${packages//,/ }" >>"$cache/$1.log" 2>&1 ||
        { tail -3 "$cache/$1.log" >&2; die "packages of $1 could not be installed"; }
    touch "$root/.ready"
}

inside() { # SUITE COMMANDS: in mounts of its own, which end with it
    local root=$cache/$1
    unshare --mount --pid --fork --kill-child bash -euc '
        root=$1
        mount --make-rprivate /
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs tmpfs "$root/run"
        exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
            PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
            PIP_DEFAULT_TIMEOUT=180 ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} PYTHONDONTWRITEBYTECODE=1 \
            bash -euc "$2"
    ' bash "$root" "$2"
}

run_tests() { # SUITE PYTEST_ARGUMENTS...
    local suite=$1 root=$cache/$1 status=0 began=$SECONDS
    shift
    rm -rf "$root/src"
    mkdir -p "$root/src" "$out"
    git ls-files -z -co --exclude-standard | tar -C "$source_dir" --null --ignore-failed-read -T - -cf - | tar -C "$root/src" -xf -
    local words
    words=$([ $# = 0 ] || printf ' %q' "$@")
    inside "$suite" "cd /src
        [ -e /venv/.ready ] || { python3 -m venv /venv && /venv/bin/pip install -q --upgrade pip; }
        /venv/bin/pip install -q -e . pytest hypothesis && touch /venv/.ready
        /venv/bin/python -m pytest -q -p no:cacheprovider tests/slurm --scenarios-out /src/scenarios.json$words" \
        >"$out/$suite.log" 2>&1 || status=$?
    [ ! -e "$root/src/scenarios.json" ] || cp "$root/src/scenarios.json" "$out/$suite.json"
    local release
    release=$(chroot "$root" slurmd -V | cut -d' ' -f2)
    printf '%-8s Slurm %-8s %s, %d s in all\n' "$suite" "$release" "$(tail -n 1 "$out/$suite.log")" $((SECONDS - began))
    [ $status = 0 ] || { grep -E '^(FAILED|ERROR|E  )' "$out/$suite.log" | head -20 >&2; return 1; }
}

failed=0
for suite in "${suites[@]}"; do
    make_chroot "$suite"
    run_tests "$suite" "$@" || failed=1
done
exit $failed
