"""How many lines `gpuward-agent decode --json` reads per CPU second.

    python -m hack.bench.decode [--lines 2000000] [--json]

Three files are made from the development lines in `tests/data`: one line in 1,000 recognised
with every shape among them and ordinary kernel messages around; every line recognised; and every
line recognised with process numbers and addresses that hardly ever repeat (the worst case). CPU
time is that of the entire command, user and system, interpreter start included, files compiled.
"""

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LINES = ROOT / "tests" / "data" / "kernel_lines.jsonl"

ORDINARY = (
    "[{t}] systemd[1]: Started Session {n} of User root.",
    "[{t}] IPv6: ADDRCONF(NETDEV_CHANGE): cali{n:x}: link becomes ready",
    (
        '[{t}] audit: type=1400 audit({n}.043:87): apparmor="STATUS" operation="profile_replace" '
        'info="same as current profile, skipping" profile="unconfined" pid={n} '
        'comm="apparmor_parser"'
    ),
    "[{t}] EXT4-fs (nvme0n1p{n}): mounted filesystem with ordered data mode. Quota mode: none.",
    (
        "[{t}] "
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,task=stress,pid={n},uid=1000"
    ),
    "[{t}] nvidia-nvlink: Nvlink Core is being initialized, major device number {n}",
    "[{t}] perf: interrupt took too long ({n} > 3926), lowering kernel.perf_event_max_sample_rate",
    "[{t}] usb 1-{n}: new high-speed USB device number {n} using xhci_hcd",
)


def recognised() -> list[str]:
    """Return every development line that is recognised."""
    rows = [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]
    return [row["line"] for row in rows if row["kind"]]


def make(count: int, share: float, unique: bool) -> bytes:
    """Return a log of `count` lines of which `share` are recognised."""
    chance = random.Random(7)
    known = recognised()
    lines = []
    for number in range(count):
        stamp = f"{number / 1000:12.6f}"
        if chance.random() < share:
            line = chance.choice(known)
            if unique:
                line = re.sub(r"pid=\d+", f"pid={number}", line, count=1)
                line = re.sub(
                    r"(?<=\b[0-9a-f]{4}:)[0-9a-f]{2}:[0-9a-f]{2}\b",
                    f"{chance.randrange(256):02x}:00",
                    line,
                    count=1,
                )
            lines.append(line)
        else:
            lines.append(chance.choice(ORDINARY).format(t=stamp, n=number))
    return ("\n".join(lines) + "\n").encode()


def measure(log: bytes) -> tuple[float, int]:
    """Return CPU seconds of one run of the command and how many findings it printed."""
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        file.write(log)
        file.flush()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        output = subprocess.run(
            [sys.executable, "-m", "agent.cli", "decode", "--json", file.name],
            cwd=ROOT,
            env={k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, output.count(b"\n")


def main() -> int:
    """Print a table, or one JSON object with `--json`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--lines", type=int, default=2_000_000, help="lines in each file")
    parser.add_argument("--runs", type=int, default=3, help="the best of so many counts")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    results = []
    for name, share, unique in (
        ("1 in 1,000 recognised", 0.001, False),
        ("every line recognised", 1.0, False),
        ("every line recognised, few repeat", 1.0, True),
    ):
        log = make(arguments.lines, share, unique)
        runs = [measure(log) for _ in range(arguments.runs)]
        cpu_s, found = min(runs)
        results.append(
            {
                "file": name,
                "bytes_per_line": round(len(log) / arguments.lines, 1),
                "findings": found,
                "lines_per_cpu_second": round(arguments.lines / cpu_s),
            }
        )
    if arguments.json:
        print(json.dumps(results))
        return 0
    for row in results:
        print(
            f"{row['file']:<38} {row['lines_per_cpu_second']:>10,} lines per CPU second "
            f"({row['findings']:,} findings)"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
