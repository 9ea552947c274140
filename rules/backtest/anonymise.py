"""An export without names: every node, GPU, workload and person gets another, always the same one.

Names are keyed digests, so two exports of one cluster agree and nobody reads the name back.
Whatever people or the kernel wrote in their own words is left out: names hide in sentences. Text
stays as it is only in fields that are known to hold no name; a field nobody listed is hidden.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Any, Final

import msgspec

from rules.api.names import ANNOTATION_SESSION, PREFIX
from rules.backtest.archive import Archive, ExportedNode, ExportedObject, ExportedPdb, ExportedPod
from rules.catalog.reasons import REASONS, RECOVERY_REASONS

_WORDS: Final = frozenset(
    {"message", "why", "remedy", "evidence", "proof", "by", "recent", "waiting", "leftByPolicy",
     "leftByFailure", "pods", "blocked", "annotations", "nodeSelector", "owner", "gangs",
     "untolerating"}
)  # fmt: skip
"""Fields with sentences, people or workloads in them."""
_SESSION_EVIDENCE: Final = frozenset(
    {"observedAt", "driverVersion", "agentVersion", "rulesVersion", "gpus", "incidents", "level"}
)
_CODES: Final = frozenset(
    {
        # sessions
        "source", "severity", "level", "type", "status", "mode", "phase", "step", "state",
        "verdict", "provider", "mark", "unit", "outcome", "scope", "steps", "word", "driver",
        # verdicts
        "health", "class", "recommendedAction", "immediate", "investigatory", "sources",
        "recoveryAction", "migMode", "virtualization", "interconnect", "links", "numa", "pci",
        "slot", "product", "gpusHealthy", "agentVersion", "rulesVersion", "driverVersion",
        # times
        "at", "since", "until", "startedAt", "endedAt", "phaseSince", "lastTransitionTime",
        "observedAt", "firstSeen", "lastSeen", "heldSince", "closedAt", "resetAt", "silentSince",
        "heartbeat", "lastAt", "forgottenUntil", "baselineAt", "lemonSince",
        "askedAt", "takenAt",
    }
)  # fmt: skip
"""Fields with words of gpuward and of the driver, and times."""
_CODE: Final = re.compile(r"[A-Za-z0-9_.:+/ -]{0,64}")
_POLICY: Final = frozenset(
    {"apiVersion", "kind", "mode", "mark", "budget", "drain", "release", "limits", "history"}
)
"""Parts of a policy that are numbers, times and choices; the others name the cluster's things."""
_OF_LOG: Final = re.compile(r"S?Xid[0-9]+[A-Za-z]*|Requested")
"""Reasons that the catalogue does not list: those of the kernel log, and a person's order."""
_STATED: Final = frozenset({"health", "state", "type"})
"""Beside one of these a reason is a word of gpuward; alone it is a person's."""
_KEPT_LABELS: Final = (f"{PREFIX}/", "nvidia.com/", "node.kubernetes.io/instance-type")
_HIDDEN_LABELS: Final = frozenset({f"{PREFIX}/nvlink-domain"})
_GPU: Final = re.compile(r"(?i)(GPU|MIG)-[0-9a-f-]{4,}")


class Anonymiser:
    """Other names, for one key."""

    def __init__(self, key: bytes) -> None:
        """ValueError without a key: names could be guessed and compared then."""
        if not key:
            raise ValueError("names are hidden with a key")
        self._key = key

    def name(self, kind: str, text: str) -> str:
        """The name that stands for `text`; nothing stays nothing."""
        if not text:
            return ""
        digest = hmac.new(self._key, f"{kind}/{text}".encode(errors="replace"), hashlib.sha256)
        return f"{kind}-{digest.hexdigest()[:10]}"

    def uuid(self, text: str) -> str:
        """A UUID that is none of a real GPU."""
        hidden = self.name("gpu", text)
        return f"GPU-{hidden[4:12]}-0000-0000-0000-00000000{hidden[-2:]}00" if hidden else ""

    def archive(self, archive: Archive) -> Archive:
        """The whole export."""
        return msgspec.structs.replace(
            archive,
            meta=msgspec.structs.replace(archive.meta, anonymised=True),
            nodes=tuple(map(self._node, archive.nodes)),
            pods=tuple(map(self._pod, archive.pods)),
            pdbs=tuple(map(self._pdb, archive.pdbs)),
            healths=tuple(self._object(one, "node") for one in archive.healths),
            sessions=tuple(self._object(one, "session") for one in archive.sessions),
            records=tuple(self._object(one, "record") for one in archive.records),
            pauses=tuple(self._object(one, "pause") for one in archive.pauses),
            policy=self._policy(archive.policy),
        )

    def _node(self, one: ExportedNode) -> ExportedNode:
        labels = {
            key: value if self._keeps(key) else self.name("label", value)
            for key, value in one.labels.items()
        }
        return msgspec.structs.replace(
            one,
            name=self.name("node", one.name),
            uid=self.name("uid", one.uid),
            labels=labels,
            annotations={key: self._note(key, text) for key, text in one.annotations.items()},
            boot_id=self.name("boot", one.boot_id),
            taints=tuple(taint for taint in one.taints if taint.get("key", "").startswith(PREFIX)),
        )

    def _note(self, key: str, text: str) -> str:
        """Of annotations only our own note on the mark: what people wrote stays at home."""
        if key != ANNOTATION_SESSION:
            return ""
        try:
            note = msgspec.json.decode(text.encode(), type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return ""
        return msgspec.json.encode(self._walk(note)).decode()

    def _keeps(self, key: str) -> bool:
        return key.startswith(_KEPT_LABELS) and key not in _HIDDEN_LABELS

    def _pod(self, one: ExportedPod) -> ExportedPod:
        return msgspec.structs.replace(
            one,
            namespace=self.name("ns", one.namespace),
            name=self.name("pod", f"{one.namespace}/{one.name}"),
            node=self.name("node", one.node),
            owner=self.name("owner", f"{one.namespace}/{one.owner}" if one.owner else ""),
            pdbs=tuple(self._pdb_key(key) for key in one.pdbs),
        )

    def _pdb_key(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        return f"{self.name('ns', namespace)}/{self.name('pdb', f'{namespace}/{name}')}"

    def _pdb(self, one: ExportedPdb) -> ExportedPdb:
        namespace, name = self._pdb_key(f"{one.namespace}/{one.name}").split("/")
        return msgspec.structs.replace(one, namespace=namespace, name=name)

    def _object(self, one: ExportedObject, kind: str) -> ExportedObject:
        return msgspec.structs.replace(
            one,
            name=self.name(kind, one.name),
            uid=self.name("uid", one.uid),
            annotations={},
            spec=self._walk(one.spec),
            status=self._walk(one.status),
        )

    def _policy(self, policy: dict[str, Any]) -> dict[str, Any]:
        """Only what is sure to name nothing: a back-test reads its policies from files."""
        kept = {key: value for key, value in policy.items() if key in _POLICY}
        if isinstance(budget := kept.get("budget"), dict):
            kept["budget"] = {key: value for key, value in budget.items() if key != "per"}
        return kept

    def _walk(self, value: Any, key: str = "") -> Any:
        if key == "evidence" and isinstance(value, dict):
            value = {k: v for k, v in value.items() if k in _SESSION_EVIDENCE}
            return {k: self._walk(v, k) for k, v in value.items()}
        if key in _WORDS:
            return self._person(value) if key == "by" else type(value)()
        if isinstance(value, dict):
            walked = {k: self._walk(v, k) for k, v in value.items() if k != "reason"}
            if "reason" in value:
                walked["reason"] = self._reason(value)
            return walked
        if isinstance(value, list):
            return [self._walk(item, key) for item in value]
        return self._text(value, key) if isinstance(value, str) else value

    def _person(self, value: Any) -> Any:
        """Whether a person did it has to stay known, not who."""
        if not isinstance(value, str) or value in {"gpuward", "person", ""}:
            return value
        return self.name("person", value)

    def _text(self, text: str, key: str) -> str:
        if key in {"uuid", "gpus", "gpu"}:
            return self.uuid(text)
        if key in {"nodeName", "node", "nodes"}:
            return self.name("node", text)
        if key in {"id", "incident", "object"}:  # a failed test is a cause by its Job's name
            return self.name("incident", text)
        if key in {"closedBy", "mendedBy", "closesOn"}:
            what = text.partition("(")[0]
            return what if what.isalnum() else self.name("end", text)
        if key in _CODES and _CODE.fullmatch(text):
            return _GPU.sub(lambda found: self.uuid(found[0]), text)
        kind = {"nodeUID": "uid", "bootID": "boot", "podUID": "uid"}.get(key, key.lower())
        return self.name(kind, text)

    def _reason(self, said: dict[str, Any]) -> str:
        """A code of the catalogue, or of a state; not what a policy or a person calls it."""
        reason = said["reason"]
        if not isinstance(reason, str) or not reason.isalnum():
            return ""  # a sentence: a code has no blank
        if reason in REASONS or reason in RECOVERY_REASONS or _OF_LOG.fullmatch(reason):
            return reason
        if "severity" in said:
            return self.name("reason", reason)
        return reason if _STATED & said.keys() else ""
