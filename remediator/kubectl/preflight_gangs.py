"""Check whether the remediator may read the pod groups of Kubernetes, where they are served."""

from remediator.kubectl.cluster import Cluster
from remediator.kubectl.preflight_policies import Finding
from rules.api import workloads


async def gang_checks(cluster: Cluster, user: str) -> list[Finding]:
    """Return the finding if pod groups are served. `user` is the remediator's."""
    group = await cluster.get(f"/apis/{workloads.NATIVE_API}") or {}
    served = {each.get("version") for each in group.get("versions", ())}
    for kind, versions in workloads.NATIVE_VERSIONS.items():
        if served.intersection(versions):
            may = await cluster.may(user, workloads.NATIVE_API, f"{kind.lower()}s", "get", "")
            if may is not False:
                return [("pod groups", f"{kind}s are served", True)]
            text = f"{user} may not get {kind}s, so all pods of a group leave together"
            return [("pod groups", f"{text}; apply the manifests of daemonset/base", False)]
    return []
