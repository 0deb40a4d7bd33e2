#!/bin/sh
# Make one of the project's environments:  sh tools/bootstrap.sh demo|dev|interop
#
# uv does the work. Where it is missing, or is a shim that cannot start, it is brought by pip
# into .tools/. The interpreter is the one of .python-version, or any Python 3.12+ where that
# one is neither installed nor fetchable.
set -eu
cd "$(dirname "$0")/.."

goal=${1:-dev}
uv_pin=0.13.9
wanted=$(cat .python-version)
log=.tools/bootstrap.log
mkdir -p .tools
: >"$log"
unset VIRTUAL_ENV PYTHONPATH PYTHONHOME UV_PROJECT UV_PYTHON

say() { printf '%s\n' "$*"; }

die() {
    say "setup failed: $1" >&2
    [ ! -s "$log" ] || tail -n 20 "$log" >&2
    exit 1
}

# Every program of one of the given names on PATH, and then those of pyenv, whose shims
# refuse to start where .python-version names a version that it does not have.
candidates() {
    saved=$IFS
    for name in "$@"; do
        IFS=:
        for folder in $PATH; do
            [ ! -x "$folder/$name" ] || say "$folder/$name"
        done
        IFS=$saved
        for program in "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/*/bin/"$name"; do
            [ ! -x "$program" ] || say "$program"
        done
    done
}

is_new_uv() {
    "$1" --version 2>/dev/null | awk '$1 == "uv" { split($2, v, "."); ok = v[1] > 0 || v[2] >= 8 } END { exit !ok }'
}

find_uv() {
    for program in .tools/bin/uv $(candidates uv); do
        if is_new_uv "$program"; then
            uv=$program
            return 0
        fi
    done
    return 1
}

bring_uv() {
    say "Bringing uv $uv_pin into .tools/"
    for python in $(candidates "python$wanted" python3 python3.13 python3.12 python); do
        "$python" -m pip --version >>"$log" 2>&1 || continue
        "$python" -m pip install --quiet --no-input --disable-pip-version-check --upgrade \
            --target .tools "uv==$uv_pin" >>"$log" 2>&1 || continue
        ! find_uv || return 0
    done
    die "no Python 3 with pip could install uv; see https://docs.astral.sh/uv for other ways to get it"
}

usable() { "$1" -c "import sys; sys.exit(sys.version_info < (3, 12))" >>"$log" 2>&1; }

# The interpreter for a version: on the system, or fetched by uv. Prints its path.
find_python() {
    for program in "$("$uv" python find --system --no-python-downloads "$1" 2>>"$log" || true)" \
        $(candidates "python$1"); do
        if [ -n "$program" ] && usable "$program"; then
            say "$program"
            return 0
        fi
    done
    return 1
}

choose_python() {
    python=$(find_python "$wanted") && return 0
    say "Fetching Python $wanted"
    if "$uv" python install "$wanted" >>"$log" 2>&1 && python=$(find_python "$wanted"); then
        return 0
    fi
    for version in 3.12 3.14 ">=3.12"; do
        if python=$(find_python "$version"); then
            say "Python $wanted is not here and cannot be fetched: using $("$python" -V 2>&1)"
            return 0
        fi
    done
    die "no Python 3.12 or newer was found, and Python $wanted could not be fetched; install one and run again"
}

make_environment() {
    target=$1
    shift
    say "Making $target ($goal)"
    export UV_PROJECT_ENVIRONMENT="$target"
    "$uv" sync --quiet --python "$python" "$@" >>"$log" 2>&1 && return 0
    # Behind a proxy that signs for everybody, only the system's own certificates will do.
    if grep -q "peer certificate" "$log"; then
        UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 "$uv" sync --quiet --python "$python" "$@" >>"$log" 2>&1 && return 0
    fi
    die "uv sync could not make $target"
}

find_uv || bring_uv
choose_python
case $goal in
demo) make_environment .venv --inexact --no-default-groups --extra show --extra xarray ;;
dev) make_environment .venv ;;
interop) make_environment .venv-interop --only-group interop ;;
*) die "unknown environment: $goal" ;;
esac
