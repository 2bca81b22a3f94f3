#!/bin/sh
# scripts/sanitize.sh PYTHON [STREAMS]: the compiled kernel under gcc's address and undefined-behaviour sanitizers.
# Builds it into a temporary directory, and runs there the kernel's tests and the fuzz corpus (STREAMS hostile streams,
# 300 unless given). Every bytes object comes from malloc, so that a read behind it and its closing zero is seen. Any finding ends
# it with an error. Needs gcc with libasan, and Cython and the test requirements in PYTHON's environment.
set -eu

python=$1
streams=${2:-300}
CC=${CC:-gcc}
export CC

fail() {
    echo "amqpd: $*" >&2
    exit 1
}

command -v "$CC" >/dev/null || fail "the sanitizer build needs gcc and found no $CC: install it, or name it with CC="
"$python" -c 'import Cython' 2>/dev/null || fail "the sanitizer build needs Cython: $python -m pip install cython"
asan=$("$CC" -print-file-name=libasan.so)
[ "$asan" != libasan.so ] || fail "$CC has no libasan: install it (Debian: libgcc-12-dev or like your gcc)"
# libasan comes first, so what C++ extensions throw must be found beside it.
preload="$asan $("$CC" -print-file-name=libstdc++.so)"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/amqpd"
python=$(command -v "$python")
case $python in /*) ;; *) python=$PWD/$python ;; esac

# A copy of the sources, so that nothing is left in the checkout and no other build is found.
cp -R amqpd tests pyproject.toml setup.py "$work/"
[ ! -d conformance ] || cp -R conformance "$work/"
cd "$work"
rm -rf amqpd/_compiled
mkdir -p amqpd/_compiled/kernel
"$python" -m cython -3 --line-directives -o amqpd/kernel/compiled.c amqpd/kernel/compiled.pyx
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
"$CC" -shared -fPIC -g -O1 -fno-omit-frame-pointer -Wall -Wextra -Wno-unused-parameter \
    -Wno-missing-field-initializers -Wno-cast-function-type -fsanitize=address,undefined -fno-sanitize-recover=all \
    -I"$include" amqpd/kernel/compiled.c -o "amqpd/_compiled/kernel/compiled$suffix"
# The modules around it stay plain: what is looked at is the kernel.
"$python" -c "import pathlib, amqpd.compiled as c; c.write_manifest(pathlib.Path('amqpd/_compiled'), c.sources())"

run() {
    # Into files: pytest keeps what a dying process says on standard error.
    env LD_PRELOAD="$preload" ASAN_OPTIONS="detect_leaks=0:log_path=$work/finding" \
        UBSAN_OPTIONS="print_stacktrace=1:log_path=$work/finding" \
        PYTHONMALLOC=malloc PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 AMQPD_KERNEL=cython \
        AMQPD_FUZZ_STREAMS="$streams" "$python" "$@"
}

# A sanitizer that does not see an overread proves nothing: first one that it must see.
cat >overread.c <<'END'
#include <Python.h>
static PyObject *overread(PyObject *self, PyObject *data)
{
    (void)self;
    return PyLong_FromLong(((volatile unsigned char *)PyBytes_AS_STRING(data))[PyBytes_GET_SIZE(data) + 1]);
}
static PyMethodDef methods[] = {{"overread", overread, METH_O, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "overread", "", -1, methods};
PyMODINIT_FUNC PyInit_overread(void) { return PyModule_Create(&module); }
END
"$CC" -shared -fPIC -g -O1 -Wno-missing-field-initializers -fsanitize=address -I"$include" overread.c -o "overread$suffix"
if run -c 'import overread; overread.overread(bytes(100))' >overread.log 2>&1; then
    fail "the sanitizer does not see a read behind a bytes object"
fi
grep -qs heap-buffer-overflow finding.* || { cat overread.log >&2; fail "the sanitizer does not run"; }
rm finding.*

# Everything is several times slower here: hypothesis' own profile "ci" has no deadlines (and always the same examples).
# No module is compiled here, so what says how compiled modules are imported is left out.
run -m pytest -q -p no:cacheprovider --hypothesis-profile=ci -o timeout=1200 -o faulthandler_timeout=0 \
    --deselect tests/test_compiled.py::test_a_compiled_module_can_be_the_first_that_is_imported \
    tests/kernel/test_kernel.py tests/kernel/test_kernels_agree.py tests/test_compiled.py \
    tests/message/test_rewriting.py tests/queues/test_templates.py tests/kernel/test_pieces.py tests/connection/test_fuzz.py || {
    status=$?
    cat finding.* >&2 2>/dev/null || fail "the tests failed ($status), and the sanitizers found nothing"
    fail "the sanitizers found what stands above"
}
echo "amqpd: the sanitizers found nothing"
