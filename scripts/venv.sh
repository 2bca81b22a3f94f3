#!/bin/sh
# scripts/venv.sh VENV [EXTRA]: makes the virtual environment VENV if it is missing, and installs this checkout
# into it, at the versions of constraints.txt. Everything that can be missing on a fresh machine is one sentence.
set -eu

venv=$1
extra=${2:+[$2]}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fail() {
    echo "amqpd: $*" >&2
    exit 1
}

quietly() {
    "$@" >"$log" 2>&1 || { cat "$log" >&2; return 1; }
}

find_python() {
    # shellcheck disable=SC2086 # PYTHON may be "py -3.12"
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    fail "needs Python 3.11 or newer and found none: install it, or name it with make PYTHON=/path/to/python3"
}

# A worktree that links to another one's environment uses it as it is: installing here would point it at this
# checkout, for everyone.
if [ -L "$venv" ]; then
    [ -x "$venv/bin/python" ] || fail "$venv is a link to an environment that is gone: remove the link"
    exit 0
fi

if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    rm -rf "$venv"
    # Debian and Ubuntu ship venv with Python, but the pip that goes into it only in python3-venv. Where there is a
    # pip (22.3 or newer) for the system's Python, that one installs into the environment.
    if "$python" -c 'import ensurepip' 2>/dev/null; then
        quietly "$python" -m venv "$venv" || fail "cannot make the virtual environment $venv (see above)"
    elif "$python" -m pip --python "$python" --version >/dev/null 2>&1; then
        quietly "$python" -m venv --without-pip "$venv" || fail "cannot make the virtual environment $venv (see above)"
        command -v "$python" >"$venv/python-with-pip"
    else
        fail "$python has neither venv nor pip: on Debian and Ubuntu run 'apt-get install python3-venv' as root," \
            "then this again"
    fi
fi

if [ -f "$venv/python-with-pip" ]; then
    set -- "$(cat "$venv/python-with-pip")" -m pip --python "$venv/bin/python"
else
    set -- "$venv/bin/python" -m pip
fi
echo "installing amqpd$extra into $venv (once, and again when its requirements change)"
# Developers have the pipeline on the audit log, too, which is a distribution of its own.
pipeline=
if [ "$extra" = "[dev]" ]; then pipeline="-e ./spark"; fi
# shellcheck disable=SC2086 # two words, or none
quietly "$@" --disable-pip-version-check install --quiet -c constraints.txt -e ".$extra" $pipeline ||
    fail "cannot install the requirements (see above): is this machine on a network with a package index?"

# The stamps that the Makefile compares with pyproject.toml and constraints.txt. "dev" holds what running needs, and
# "docs" does not: neither compiler nor etcd's client.
if [ "$extra" = "[docs]" ]; then touch "$venv/.installed-docs"; else touch "$venv/.installed-run"; fi
if [ "$extra" = "[dev]" ]; then touch "$venv/.installed-dev"; fi
