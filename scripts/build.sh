#!/bin/sh
# scripts/build.sh PYTHON: compiles what setup.py says, if that is not up to date and if there is a C compiler.
# Without one amqpd runs all the same, slower: no way through here is a failure.
set -eu

python=$1
log=$(mktemp)
trap 'rm -f "$log"' EXIT

state='from amqpd.compiled import unusable; print(unusable())'
why=$("$python" -c "$state")
[ -n "$why" ] || exit 0

"$python" - <<'CHECK' || exit 0
import os, shutil, sys, sysconfig
compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
header = os.path.join(sysconfig.get_path("include"), "Python.h")
missing = "a C compiler" if not shutil.which(compiler) else "" if os.path.exists(header) else "Python's headers"
if missing:
    print(f"amqpd: {missing} not found, so nothing is compiled: it runs on its plain Python kernel, which is slower")
sys.exit(bool(missing))
CHECK

echo "compiling the kernel and the modules around it (a minute or a few; again when their sources change)"
"$python" setup.py build_ext --inplace >"$log" 2>&1 || true
why=$("$python" -c "$state")
if [ -n "$why" ]; then
    grep -iE 'error|amqpd:' "$log" | cut -c 1-300 | tail -n 5 >&2
    echo "amqpd: compiling failed ($why): it runs on its plain Python kernel, which is slower" >&2
fi
