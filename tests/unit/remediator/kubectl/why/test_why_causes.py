"""What `why` says of causes: the repair as a command, what ends each."""

from __future__ import annotations

import msgspec

from remediator.kubectl.why import why_lines as why
from rules.api.health import plain
from rules.api.nodes import FreshNode
from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from rules.session.causes import cause_of
from rules.session.external import external_of
from tests.support.remediator.kubectl_looks import NAME, look
from tests.support.remediator.kubectl_objects import (
    NOW,
    Object,
    ago,
    condition,
    marked,
    session,
    sick,
)


def test_the_repair_is_a_command_that_names_the_gpu() -> None:
    text = "\n".join(why(look(sick(NAME))))
    assert "on the node, once idle: nvidia-smi --gpu-reset -i 0000:9d:00.0" in text
    assert "more: gpuward-agent explain Xid95UncontainedMemoryError" in text


SITE = {
    "match": "condition GpuBroken=True", "reason": "SiteGPUBroken",
    "severity": "Fatal", "level": "Drain", "for": "1s",
}  # fmt: skip


def without_step(*sources: str, closes_on: str = "Reset", site: Object = SITE) -> str:
    """What `why` says of a session that no repair step is left for, whose causes are of these."""
    policy = load_policy({"mode": "Enforce", "external": [site]})
    assert isinstance(policy, Policy)
    uid = "uid-7"
    on = marked(NAME, "gpu-7-1")
    on["metadata"]["uid"] = uid
    on["status"]["conditions"].append(
        {"type": "GpuBroken", "status": "True", "lastTransitionTime": ago(20)}
    )
    said = external_of(msgspec.convert(on, FreshNode), policy, NOW, {}).incidents
    others = cause_of(said[0]) if said else None
    of = {
        "Detector": {"source": "Detector", "incident": f"i-{NAME}", "reason": "Xid95"},
        "External": plain(others) if others else {},
    }
    health = sick(NAME)
    health["status"]["incidents"][0]["closesOn"] = closes_on
    if "Detector" not in sources:
        health["status"]["incidents"] = []
    of_this = session(
        "gpu-7-1", NAME, "Quarantined", "Quarantined; no repair step is left, a person decides.",
        spec={"causes": [of[source] for source in sources], "nodeUID": uid},
        conditions=[condition("NeedsHuman", "NoStepLeft", "no repair step is left")],
    )  # fmt: skip
    return "\n".join(why(look(health, of_this, on=on, policy=policy)))


def test_without_a_step_left_repaired_is_offered_only_where_it_closes_the_cause() -> None:
    """`repaired` closes nothing of others' detectors, and not what a reset closes."""
    others = without_step("External")
    assert "repaired" not in others
    by_reset = without_step("Detector")
    assert "gpuward repaired" not in by_reset
    by_word = without_step("Detector", closes_on="Human")
    assert "kubectl gpuward repaired gpu-7 " in by_word
    both = without_step("Detector", "External", closes_on="Human")
    assert "kubectl gpuward repaired gpu-7 " in both
