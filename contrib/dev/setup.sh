#!/bin/sh
# Sets up all that `make demo` and `make test` need, on a machine with nothing but git, make and Python.
#   setup.sh demo    a virtual environment with slurmgpu, and a C compiler for the simulated driver
#   setup.sh test    that, the tools of the tests, and as root on Debian or Ubuntu real Slurm, MariaDB and PostgreSQL
# Safe to run again: what is there is left alone.
set -eu
what=${1:?demo or test}
cd "$(dirname "$0")/../.."
venv=.venv

say() { printf '%s\n' "setup: $*" >&2; }
die() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }
can_install() { [ "$(id -u)" = 0 ] && have apt-get; }

# The services that packages bring are started by the tests, never by the packages.
install_packages() {
    policy=/usr/sbin/policy-rc.d made=
    [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' >$policy; chmod 755 $policy; made=1; }
    say "installing $*"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" \
        >/tmp/slurmgpu-apt.$$ 2>&1 || { tail -5 /tmp/slurmgpu-apt.$$ >&2; failed=1; }
    rm -f /tmp/slurmgpu-apt.$$
    [ -z "$made" ] || rm -f $policy
    [ -z "${failed:-}" ] || die "apt-get could not install $*"
}

packages_missing() { # command:package ...
    for pair; do have "${pair%%:*}" || printf '%s ' "${pair#*:}"; done
}

python=$(command -v python3) || die "python3 is missing"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "Python 3.11 or newer is needed"

missing=
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing=python3-venv
have cc || missing="$missing gcc libc6-dev"
if [ "$what" = test ]; then
    missing="$missing $(packages_missing slurmctld:slurmctld slurmd:slurmd slurmdbd:slurmdbd squeue:slurm-client \
        munged:munge mariadbd:mariadb-server ip:iproute2 pgrep:procps strace:strace)"
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
fi
if [ -n "$(echo $missing)" ] && can_install; then
    # shellcheck disable=SC2086
    install_packages $missing
fi

"$python" -c 'import ensurepip, venv' 2>/dev/null || die "Python's venv is missing: ask for the package python3-venv"
stamp=$venv/.ready-$what
if [ ! -e "$stamp" ] || [ pyproject.toml -nt "$stamp" ]; then
    say "making $venv"
    [ -x $venv/bin/python ] || "$python" -m venv $venv
    $venv/bin/python -m pip install -q --upgrade 'pip>=25.1' 2>/dev/null
    groups=
    [ "$what" = demo ] || groups="--group test --group lint --group docs"
    # shellcheck disable=SC2086
    $venv/bin/python -m pip install -q -e . $groups
    if [ "$what" = test ]; then # bindings of other years, for the tests that compare them
        for version in 12.535.161 12.575.51; do
            [ -d $venv/bindings/$version ] || $venv/bin/python -m pip install -q --no-deps --no-compile \
                --target $venv/bindings/$version nvidia-ml-py==$version
        done
    fi
    touch "$stamp"
fi
# Without a compiler and without the right to install one: a compiler from a Python package.
have cc || $venv/bin/python -m ziglang version >/dev/null 2>&1 || $venv/bin/python -m pip install -q ziglang
