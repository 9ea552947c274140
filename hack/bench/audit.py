"""Count API calls of one user by verb and resource from the audit log of kube-apiserver."""

import json
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple


class Calls(NamedTuple):
    """The calls of one verb on one resource."""

    verb: str
    resource: str
    number: int
    mean_ms: float
    refused: int
    """How many were answered 400 or higher."""


def server_flags(folder: Path, user: str) -> tuple[str, ...]:
    """Write an audit policy to the folder. Return the flags that log the calls of this user."""
    rules = [{"level": "Metadata", "users": [user]}, {"level": "None"}]
    policy = folder / "audit-policy.json"
    kind = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
    policy.write_text(json.dumps({**kind, "omitStages": ["RequestReceived"], "rules": rules}))
    return (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log_of(folder)}",
        "--audit-log-maxsize=0",  # one file, however long the run
    )


def log_of(folder: Path) -> Path:
    """Return the path of the audit log in the folder."""
    return folder / "audit.log"


def calls(lines: Iterable[str], since: float = 0.0) -> list[Calls]:
    """Return the calls that the server received from `since` (Unix time) on, most frequent first.

    A watch counts when it starts, any other call when it is answered. Calls for the Lease are left
    out, because their number depends on the time and not on the sessions.
    """
    answers: defaultdict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)
    for line in lines:
        event = json.loads(line)
        stage = "ResponseStarted" if event["verb"] == "watch" else "ResponseComplete"
        received = _time(event["requestReceivedTimestamp"])
        resource = _resource(event)
        if event["stage"] != stage or received < since or resource == "leases":
            continue
        took_ms = 1000 * (_time(event["stageTimestamp"]) - received)
        code = int(event.get("responseStatus", {}).get("code", 0))
        answers[event["verb"], resource].append((took_ms, code))
    found = [
        Calls(
            *key, len(each), fmean(ms for ms, _ in each), sum(1 for _, code in each if code >= 400)
        )
        for key, each in answers.items()
    ]
    return sorted(found, key=lambda one: (-one.number, one.verb, one.resource))


def _resource(event: dict[str, Any]) -> str:
    """Resource and subresource; lists that the server may answer from its cache are apart."""
    about = event.get("objectRef", {})
    parts = [about.get("resource", ""), about.get("subresource", "")]
    name = "/".join(filter(None, parts)) or event["requestURI"].partition("?")[0]
    cached = event["verb"] == "list" and "resourceVersion=" in event["requestURI"]
    return f"{name}, cached" if cached else name


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
