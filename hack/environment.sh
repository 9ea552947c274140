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

extras=${GPUWARD_EXTRAS:-dev}
wanted="$(cksum pyproject.toml constraints.txt)"
have=$(cat "$venv/gpuward.stamp" 2>/dev/null || true)
# What the tests need holds what the demo needs; an older stamp has no list of extras.
case $have in
"$wanted" | "$wanted dev" | "$wanted $extras") ;;
*)
	if [ ! -w "$root" ]; then
		echo "$root cannot be written to, and installing writes there; copy it first:" >&2
		echo "  cp -r '$root' ~/gpuward && cd ~/gpuward && hack/demo" >&2
		exit 64
	fi
	python=$(find_python) || exit 64
	echo "preparing the virtual environment (once) ..." >&2
	[ -x "$PY" ] || "$python" -m venv "$venv" || exit 1
	"$PY" -m pip --disable-pip-version-check install --quiet --constraint constraints.txt \
		--editable ".[$extras]" || exit 1
	printf '%s' "$wanted $extras" >"$venv/gpuward.stamp"
	;;
esac
PATH=$venv/bin:$PATH
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
export PATH PYTHONPATH
