"""The records of a cluster as they are exported: which files, and what of each object is in them.

What is not listed here is in no export: no pod spec, no environment, no secret, no config map but
the policy, and of annotations only gpuward's own. Written by `kubectl gpuward export`, read by
`gpuward-remediator backtest`. Pure: bytes by file name in and out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from rules.api.budgets import PdbView
from rules.api.health import Wire, plain
from rules.api.metadata import ObjectMeta
from rules.api.names import PREFIX
from rules.api.nodes import HealthView, NodeView, PauseView, QuarantineView, Taint
from rules.api.pods import PodView
from rules.api.timestamps import parse_time
from rules.drain.budget import matching
from rules.ledger.record import RecordView
from rules.policy.policy import Policy, effective_view

T = TypeVar("T")

FORMAT: Final = 1
MAX_FILE_BYTES: Final = 512 * 1024 * 1024
FILES: Final = (
    "meta",
    "nodes",
    "pods",
    "pdbs",
    "healths",
    "sessions",
    "records",
    "pauses",
    "policy",
)
LEFT_OUT: Final = {"leftOut": "by the export"}
"""Stands for a template."""
_LABELS_OF: Final = (
    f"{PREFIX}/",
    "nvidia.com/",
    "topology.",
    "node.kubernetes.io/instance-type",
    "node-role.kubernetes.io/",
)
"""Labels that rules and groups read; the policy's own keys come on top."""


class ArchiveError(ValueError):
    """What was given is no export; one sentence that says why."""


class ExportMeta(Wire, frozen=True):
    """What the export is, and what it could not hold."""

    format: int = FORMAT
    at: str = ""
    version: str = ""
    anonymised: bool = False
    lacks: tuple[str, ...] = ()


class ExportedNode(Wire, frozen=True):
    """A Node: labels that rules read, gpuward's annotations, taints, conditions, boot."""

    name: str
    uid: str = ""
    created_at: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    unschedulable: bool = False
    taints: tuple[dict[str, str], ...] = ()
    conditions: dict[str, str] = msgspec.field(default_factory=dict)
    boot_id: str = msgspec.field(name="bootID", default="")

    @property
    def created(self) -> float | None:
        """When this Node object registered; None where nobody knows."""
        return parse_time(self.created_at)


class ExportedPod(Wire, frozen=True):
    """A pod: where it runs, whose it is, how many GPUs it asks for, which PDBs guard it."""

    namespace: str
    name: str
    node: str = ""
    phase: str = ""
    owner_kind: str = ""
    owner: str = ""
    gpus: int = 0
    pdbs: tuple[str, ...] = ()


class ExportedPdb(Wire, frozen=True):
    """A PodDisruptionBudget in numbers."""

    namespace: str
    name: str
    min_available: str = ""
    max_unavailable: str = ""
    disruptions_allowed: int = 0
    expected_pods: int = 0


class ExportedObject(Wire, frozen=True):
    """One of gpuward's own objects, whole but for its metadata."""

    name: str
    uid: str = ""
    created_at: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class Archive(Wire, frozen=True):
    """Everything in one export."""

    meta: ExportMeta = ExportMeta()
    nodes: tuple[ExportedNode, ...] = ()
    pods: tuple[ExportedPod, ...] = ()
    pdbs: tuple[ExportedPdb, ...] = ()
    healths: tuple[ExportedObject, ...] = ()
    sessions: tuple[ExportedObject, ...] = ()
    records: tuple[ExportedObject, ...] = ()
    pauses: tuple[ExportedObject, ...] = ()
    policy: dict[str, Any] = msgspec.field(default_factory=dict)


def to_files(archive: Archive) -> dict[str, bytes]:
    """File name to its bytes, JSON that a person can read."""
    return {
        f"{name}.json": msgspec.json.format(msgspec.json.encode(getattr(archive, name)), indent=1)
        for name in FILES
    }


def from_files(files: Mapping[str, bytes]) -> Archive:
    """The archive; ArchiveError names the file that is missing or cannot be read."""
    if "sessions.json" not in files or "meta.json" not in files:
        raise ArchiveError("it holds no meta.json and sessions.json; is it from gpuward export?")
    found: dict[str, Any] = {}
    hints = {f.name: f.type for f in msgspec.structs.fields(Archive)}
    for name in FILES:
        raw = files.get(f"{name}.json")
        if raw is None:
            continue
        try:
            found[name] = msgspec.json.decode(raw, type=hints[name])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ArchiveError(f"{name}.json cannot be read: {error}"[:300]) from error
    archive = Archive(**found)
    if archive.meta.format > FORMAT:
        raise ArchiveError(f"its format is {archive.meta.format}, this gpuward reads {FORMAT}")
    return archive


def exported_node(node: NodeView, policy: Policy) -> ExportedNode:
    """What of a Node is exported."""
    wanted = label_keys(policy)
    return ExportedNode(
        name=node.name,
        uid=node.uid,
        created_at=node.metadata.creation_timestamp,
        labels={k: v for k, v in node.labels.items() if k in wanted or k.startswith(_LABELS_OF)},
        annotations={k: v for k, v in node.annotations.items() if k.startswith(f"{PREFIX}/")},
        unschedulable=node.spec.unschedulable,
        taints=tuple({"key": t.key, "effect": t.effect} for t in node.spec.taints),
        conditions={c.type: c.status for c in node.status.conditions},
        boot_id=node.boot_id,
    )


def label_keys(policy: Policy) -> frozenset[str]:
    """Label keys that the policy names, and those that call a rack or pool so."""
    named = {part.partition("=")[0].strip("! ") for part in policy.node_selector.split(",")}
    words = {word for key in named for word in key.split()[:1]}
    return frozenset({*words, *policy.budget.per, *policy.repair.per, "rack", "pool"})


def exported_pods(pods: Iterable[PodView], pdbs: Iterable[PdbView]) -> tuple[ExportedPod, ...]:
    """What of pods is exported: nothing of what runs in them."""
    budgets = list(pdbs)
    found = []
    for pod in pods:
        owner = pod.metadata.controller
        found.append(
            ExportedPod(
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                node=pod.spec.node_name,
                phase=pod.status.phase,
                owner_kind=owner.kind if owner is not None else "",
                owner=owner.name if owner is not None else "",
                gpus=pod.gpus,
                pdbs=tuple(pdb.key for pdb in matching(pod, budgets)),
            )
        )
    return tuple(found)


def exported_pdb(pdb: PdbView) -> ExportedPdb:
    """What of a PodDisruptionBudget is exported."""
    spec, status = pdb.spec, pdb.status
    return ExportedPdb(
        namespace=pdb.metadata.namespace,
        name=pdb.metadata.name,
        min_available="" if spec.min_available is None else str(spec.min_available),
        max_unavailable="" if spec.max_unavailable is None else str(spec.max_unavailable),
        disruptions_allowed=status.disruptions_allowed,
        expected_pods=status.expected_pods,
    )


def exported_object(
    one: HealthView | QuarantineView | RecordView | PauseView,
) -> ExportedObject:
    """What of one of gpuward's own objects is exported."""
    meta = one.metadata
    own = {k: v for k, v in meta.annotations.items() if k.startswith(f"{PREFIX}/")}
    spec = plain(one.spec) if isinstance(one, QuarantineView | PauseView) else {}
    status = {} if isinstance(one, PauseView) else plain(one.status)
    return ExportedObject(
        name=meta.name,
        uid=meta.uid,
        created_at=meta.creation_timestamp,
        annotations=own,
        spec=spec,
        status=status,
    )


def exported_policy(policy: Policy | None) -> dict[str, Any]:
    """The policy with its defaults; what else a config map holds is nobody's business here, nor
    what an adapter's template would create: that may be a pod with an environment.
    """
    if policy is None:
        return {}
    view = effective_view(policy)
    for adapter in view["repair"]["adapters"].values():
        for action in adapter["steps"].values():
            if action.get("create") is not None:
                action["create"] = dict(LEFT_OUT)
    return view


def session_view(one: ExportedObject) -> QuarantineView:
    """A session as the rules read it; ArchiveError where it is none."""
    return _view({"metadata": _meta(one), "spec": one.spec, "status": one.status}, QuarantineView)


def health_view(one: ExportedObject) -> HealthView:
    """A verdict as the rules read it."""
    return _view({"metadata": _meta(one), "status": one.status}, HealthView)


def record_view(one: ExportedObject) -> RecordView:
    """A record as the rules read it."""
    return _view({"metadata": _meta(one), "status": one.status}, RecordView)


def node_object(one: ExportedNode) -> dict[str, Any]:
    """The Node as an API object."""
    return {
        "metadata": {
            "name": one.name,
            "uid": one.uid or f"uid-{one.name}",
            "resourceVersion": "1",
            "creationTimestamp": one.created_at,
            "labels": dict(one.labels),
            "annotations": dict(one.annotations),
        },
        "spec": {
            "unschedulable": one.unschedulable,
            "taints": [plain(_taint(taint)) for taint in one.taints],
        },
        "status": {
            "conditions": [{"type": k, "status": v} for k, v in one.conditions.items()],
            "nodeInfo": {"bootID": one.boot_id},
        },
    }


def _taint(raw: Mapping[str, str]) -> Taint:
    return Taint(key=str(raw.get("key", "")), effect=str(raw.get("effect", "")))


def _meta(one: ExportedObject) -> dict[str, Any]:
    meta = ObjectMeta(
        name=one.name,
        uid=one.uid or f"uid-{one.name}",
        resource_version="1",
        creation_timestamp=one.created_at,
        annotations=one.annotations,
    )
    return {key: value for key, value in msgspec.to_builtins(meta).items() if value is not None}


def _view(raw: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        name = raw["metadata"].get("name", "")
        raise ArchiveError(f"{name!s:.80} cannot be read: {error}"[:300]) from error
