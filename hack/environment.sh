# Sourced by hack/test and hack/demo: make or reuse the checkout's virtual environment.
# Sets PY to its interpreter. Needs Python 3.11 or later with venv, nothing else.

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root" || exit 1
venv=${GPUWARD_VENV:-$root/.venv}
PY=$venv/bin/python

find_python() {
	for candidate in ${PYTHON:-} python3.14 python3.13 python3.12 python3.11 python3 python; do
		if command -v "$candidate" >/dev/null 2>&1 &&
			"$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
			echo "$candidate"
			return 0
		fi
	done
	echo "gpuward needs Python 3.11 or later with venv (Debian: apt-get install python3-venv)" >&2
	return 1
}

wanted=$(cksum pyproject.toml constraints.txt)
if [ ! -x "$PY" ] || [ "$(cat "$venv/gpuward.stamp" 2>/dev/null)" != "$wanted" ]; then
	python=$(find_python) || exit 64
	echo "preparing the virtual environment (once) ..." >&2
	[ -x "$PY" ] || "$python" -m venv "$venv" || exit 1
	"$PY" -m pip --disable-pip-version-check install --quiet --constraint constraints.txt \
		--editable '.[dev]' || exit 1
	printf '%s' "$wanted" >"$venv/gpuward.stamp"
fi
PATH=$venv/bin:$PATH
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
export PATH PYTHONPATH
