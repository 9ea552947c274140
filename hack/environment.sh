# Sourced by hack/test and hack/demo: create or reuse the checkout's virtual environment and set PY to
# its interpreter. Needs only Python 3.11 or later with venv.

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

# Print the progress of pip and return its exit status; print its full output if it fails.
progress() {
	code=1 output=
	while IFS= read -r line; do
		case $line in
		"pip ended with "*) code=${line##* } ;;
		"Collecting "* | "Processing "*.whl*)
			line=${line#* } line=${line%% *} line=${line##*/}
			echo "  ${line%-*-*-*.whl}"
			;;
		"Installing collected packages"*) echo "  installing them" ;;
		esac
		output=$output$line'
'
	done
	[ "$code" = 0 ] || printf '%s' "$output"
	return "$code"
}

# Packages are compiled at the first import, because most of their files are never imported. Without
# stored bytecode, as in some containers, every program would compile them again.
unset PYTHONDONTWRITEBYTECODE

# The requirement to install: the package with its test dependencies, or the one of a script.
install=${GPUWARD_INSTALL:-.[dev]}
wanted="$(cksum pyproject.toml constraints.txt)"
have=$(cat "$venv/gpuward.stamp" 2>/dev/null || true)
# The test dependencies include those of the demo; an older stamp has no list.
case $have in
"$wanted" | "$wanted dev" | "$wanted .[dev]" | "$wanted $install") ;;
*)
	if [ ! -w "$root" ]; then
		echo "$root cannot be written to, and installing writes there; copy it first:" >&2
		echo "  cp -r '$root' ~/gpuward && cd ~/gpuward && hack/demo" >&2
		exit 64
	fi
	python=$(find_python) || exit 64
	began=$(date +%s)
	echo "preparing $venv (once, about half a minute) ..." >&2
	[ -x "$PY" ] || "$python" -m venv "$venv" || exit 1
	# Compile the checkout during the downloads.
	"$PY" -m compileall -q agent remediator rules hack >/dev/null 2>&1 &
	set -f # no file name patterns: the requirement may have brackets
	{
		PYTHONUNBUFFERED=1 "$PY" -m pip --disable-pip-version-check install --progress-bar off \
			--no-compile --constraint constraints.txt --editable $install 2>&1 &&
			echo "pip ended with 0" || echo "pip ended with $?"
	} | progress >&2 || exit 1
	set +f
	echo "ready after $(($(date +%s) - began)) s" >&2
	printf '%s' "$wanted $install" >"$venv/gpuward.stamp"
	;;
esac
PATH=$venv/bin:$PATH
PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
export PATH PYTHONPATH
