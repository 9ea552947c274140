"""DeviceTaintRule: the taint by which gpuward isolates single devices of a DRA driver.

One rule taints one device with `gpuward.io/quarantine`, so that the scheduler allocates it to no
new claim. Kubernetes 1.37 serves the kind as `resource.k8s.io/v1`, 1.36 as `v1beta2` behind the
feature gate DRADeviceTaintRules. The effect is NoSchedule, or None in Shadow. It is never
NoExecute, which deletes pods without regard to PodDisruptionBudgets.

A rule has the session's UID as a label and the session as its owner: Kubernetes deletes it with
the session.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from rules.api import names
from rules.api.quarantine import IsolatedDevice
from rules.api.repair_writes import ObjectAddress

GROUP: Final = "resource.k8s.io"
VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta2")
"""The newest first."""
RESOURCE: Final = "devicetaintrules"
_BROKEN: Final = re.compile(r"v?1\.36\.[0-2](?![0-9])")
PREFIX: Final = "gpuward-"
"""The begin of the name of each rule; component `devices` allows no other."""
LABEL_SESSION: Final = f"{names.PREFIX}/session-uid"
NO_SCHEDULE: Final = "NoSchedule"
NO_EFFECT: Final = "None"
OURS: Final = {"app.kubernetes.io/name": "gpuward"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintDevice:
    """Create the DeviceTaintRule of one device; 409 AlreadyExists if it exists."""

    node: str
    node_uid: str
    session: str
    session_uid: str
    api_version: str
    device: IsolatedDevice
    reason: str
    effect: str

    @property
    def disruptive(self) -> bool:
        """Whether it takes the device out of service: a rule without effect does not."""
        return self.effect != NO_EFFECT

    @property
    def name(self) -> str:
        """The name of the rule."""
        return self.device.rule

    @property
    def spec(self) -> dict[str, Any]:
        """The spec of the rule."""
        device = self.device
        selector = {"driver": device.driver, "pool": device.pool, "device": device.device}
        taint = {"key": names.TAINT_QUARANTINE, "value": self.reason, "effect": self.effect}
        return {"deviceSelector": selector, "taint": taint}

    @property
    def body(self) -> dict[str, Any]:
        """The rule."""
        owner = {
            "apiVersion": names.API_VERSION,
            "kind": "GPUQuarantine",
            "name": self.session,
            "uid": self.session_uid,
        }
        return {
            "apiVersion": self.api_version,
            "kind": "DeviceTaintRule",
            "metadata": {
                "name": self.name,
                "labels": {**OURS, LABEL_SESSION: self.session_uid},
                "ownerReferences": [owner],
            },
            "spec": self.spec,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class UntaintDevice:
    """Delete a DeviceTaintRule; guarded by UID and resourceVersion."""

    disruptive: ClassVar[bool] = False
    node: str
    session: str
    api_version: str
    name: str
    uid: str
    resource_version: str


def broken(server: str) -> str:
    """Return why no rule may be created with an API server of this version, as a clause; "" if one
    may.

    The scheduler of 1.36.0 to 1.36.2 ignores every rule, and crashes at the next change of a
    ResourceSlice while there is one, whatever its effect (kubernetes/kubernetes#139651).
    """
    if not server:
        return "the version of the API server is unknown"
    if _BROKEN.match(server) is None:
        return ""
    return (
        f"the scheduler of Kubernetes {server[:32]} crashes at a DeviceTaintRule, update to 1.36.3"
    )


def address(api_version: str) -> ObjectAddress:
    """Return the address of all rules."""
    return ObjectAddress(api_version=api_version, resource=RESOURCE)


def rule_name(session_uid: str, driver: str, pool: str, device: str) -> str:
    """Return the name of the device's rule, the same for every leader.

    A session that is created again has another UID, so it never meets the rules of the first.
    """
    key = f"{session_uid}/{driver}/{pool}/{device}"
    return f"{PREFIX}{hashlib.sha256(key.encode()).hexdigest()[:16]}"
