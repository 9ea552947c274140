"""Where gpuward is installed, and whether its agents run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from remediator.kube.resources import AGENT_SELECTOR, DAEMON_SETS, REMEDIATOR_SELECTOR
from remediator.kubectl.cluster import GROUP_PATH, Cluster
from remediator.kubectl.command import CommandError
from remediator.kubectl.ready.check import FAIL, OK, WARN, Check
from rules.api.names import COMPONENT_AGENT
from rules.api.object_name import api_path
from rules.api.sentences import some
from rules.text.printable import printable

_DEPLOYMENTS: Final = "/apis/apps/v1/deployments"
_MOST_SHOWN: Final = 400
"""Characters of an answer of the API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What of gpuward is in the cluster, as far as the person may see it."""

    namespace: str
    """Where the person says that it is."""
    definitions: bool
    spaces: frozenset[str] | None
    """Where its workloads are; None where the person may not list them."""
    agents: dict[str, Any]
    """The agents' DaemonSet of the namespace; empty where there is none, or none to be seen."""
    unseen: str = ""
    """Why the agents' DaemonSets cannot be looked at."""
    refused: str = ""
    """What the API server last answered to the creation of an agent's pod."""

    @property
    def fresh(self) -> bool:
        """Nothing of ours is there: what is missing is what the installation brings."""
        return self.spaces == frozenset() and not self.definitions

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """The namespaces it is installed in, where this one is none of them."""
        spaces = self.spaces or frozenset()
        return () if self.namespace in spaces else tuple(sorted(spaces))


async def find_installation(cluster: Cluster, namespace: str) -> Installation:
    """Look in all namespaces: a forgotten `-n` must not look like a broken installation."""
    known = await cluster.get(GROUP_PATH) is not None
    agents, unseen = await _visible(cluster, DAEMON_SETS, AGENT_SELECTOR)
    others, hidden = await _visible(cluster, _DEPLOYMENTS, REMEDIATOR_SELECTOR)
    by_space = {str(one["metadata"].get("namespace")): one for one in agents}
    spaces = {*by_space, *(str(one["metadata"].get("namespace")) for one in others)}
    own = by_space.get(namespace, {})
    return Installation(
        namespace=namespace,
        definitions=known,
        spaces=None if unseen or hidden else frozenset(spaces),
        agents=own,
        unseen=unseen,
        refused=await _refused(cluster, namespace) if own else "",
    )


async def _refused(cluster: Cluster, namespace: str) -> str:
    """Return the message of the last event about a pod of the agent that could not be created;
    "" for none, and if this person may not list events.
    """
    selected = f"involvedObject.name={COMPONENT_AGENT},reason=FailedCreate"
    path = api_path("/api/v1/namespaces", namespace) + "/events"
    try:
        events = await cluster.everything(path, {"fieldSelector": selected})
    except CommandError as error:
        if not error.forbidden:
            raise
        return ""
    found = [
        event
        for event in events
        if event.get("reason") == "FailedCreate"
        and (event.get("involvedObject") or {}).get("name") == COMPONENT_AGENT
    ]
    last = max(found, key=lambda event: str(event.get("lastTimestamp") or ""), default={})
    return printable(str(last.get("message") or ""))[:_MOST_SHOWN]


async def _visible(cluster: Cluster, path: str, selector: str) -> tuple[list[dict[str, Any]], str]:
    """The objects, or none and why this person may not list them."""
    try:
        return await cluster.everything(path, {"labelSelector": selector}), ""
    except CommandError as error:
        if not error.forbidden:
            raise
        return [], str(error)


def place_check(here: Installation) -> list[Check]:
    """That gpuward is somewhere else; nothing where it is here, or nowhere, or may not be seen."""
    if not here.elsewhere:
        return []
    found = (
        f"gpuward is installed in {some(here.elsewhere)}, not in {here.namespace}; what depends "
        f"on that was not looked at, add -n {here.elsewhere[0]}"
    )
    return [Check(verdict=FAIL, name="namespace", found=found)]


def agents_check(here: Installation) -> list[Check]:
    """Whether the agents' pods are made and ready."""
    if here.unseen:
        return [Check(verdict=WARN, name="agents", found=f"could not look: {here.unseen}")]
    if not here.agents:
        return []  # none yet, or outside the cluster: their nodes tell
    said = here.agents
    status = said.get("status") or {}
    wanted, made, ready = (
        int(status.get(key) or 0)
        for key in ("desiredNumberScheduled", "currentNumberScheduled", "numberReady")
    )
    if not wanted:
        found = "the DaemonSet finds no node that has GPUs by its labels (docs/install.md)"
        return [Check(verdict=WARN, name="agents", found=found)]
    if ready >= wanted:
        return [Check(verdict=OK, name="agents", found=f"{ready} of {wanted} are ready")]
    template = ((said.get("spec") or {}).get("template") or {}).get("spec") or {}
    runtime = template.get("runtimeClassName")
    if made < wanted:
        needs = f" (they need RuntimeClass {runtime})" if runtime else ""
        if here.refused:
            needs = f": {here.refused}"
        if "violates PodSecurity" in here.refused:
            label = "pod-security.kubernetes.io/enforce=privileged"
            needs += f". Run kubectl label --overwrite namespace {here.namespace} {label}"
        lacks = f"{wanted - made} of {wanted} pods are not made{needs}"
        look = f"get events --field-selector involvedObject.name={COMPONENT_AGENT}"
    else:
        lacks = f"{wanted - ready} of {wanted} are not ready"
        look = f"get pods -o wide -l {AGENT_SELECTOR}"
    found = f"{lacks}; see kubectl -n {here.namespace} {look}"
    return [Check(verdict=WARN, name="agents", found=found)]
