"""Check whether the remediator may read the pod groups of Kubernetes, where they are served."""

from remediator.kubectl.cluster import Cluster
from rules.api import workloads


async def gang_checks(cluster: Cluster, user: str) -> list[tuple[str, str, bool]]:
    """Return the check, if pod groups are served, in the form of `device_checks`."""
    group = await cluster.get(f"/apis/{workloads.NATIVE_API}") or {}
    served = {each.get("version") for each in group.get("versions", ())}
    for kind, versions in workloads.NATIVE_VERSIONS.items():
        if served.intersection(versions):
            may = await cluster.may(user, workloads.NATIVE_API, f"{kind.lower()}s", "get", "")
            why = f"{user} may not get {kind}s, so all pods of a group leave together; apply the"
            text = f"{why} manifests of daemonset/base" if may is False else f"each {kind} is read"
            return [("pod groups", text, may is not False)]
    return []
