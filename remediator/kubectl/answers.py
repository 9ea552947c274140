"""An answer of the API server as a value, or as one clear sentence with its remedy."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from remediator.kube.answer import Answer, ApiError
from remediator.kubectl.command import OPERATOR, VIEWER, CommandError
from rules.api.sentences import some
from rules.text.kube_status import Told, refused_fields, told

T = TypeVar("T")

_VIEWED = {
    "",
    "nodes",
    "configmaps",
    "gpuevidences",
    "gpunodehealths",
    "gpuquarantines",
    "gpurecords",
    "gpuwardpauses",
}
"""What the role of viewers shows."""


def decoded(answer: Answer, kind: type[T]) -> T:
    """The object of an answer; CommandError where it is none."""
    try:
        return answer.decode(kind)
    except ApiError as error:
        raise CommandError(unreadable(error)) from error


def unreadable(why: object) -> str:
    """What to say of an object that nobody understands."""
    return f"the API server sent an unreadable object: {why}; is it one for this version?"


def checked(
    answer: Answer, *, writes: bool = False, role: str = OPERATOR, least: str = VIEWER
) -> Answer:
    """The answer, or CommandError with the remedy: `role` allows what viewers may not, `least` is
    the one to ask for where a viewer's would do for this answer alone. No name: administrators.
    """
    if answer.ok:
        return answer
    said = answer.sentence()
    match answer.code:
        case 404 if not answer.from_kubernetes and b"page not found" not in answer.body:
            raise CommandError(
                "what answers is not a Kubernetes API server; check the cluster's address in the "
                "kubeconfig and the proxy settings"
            )
        case 404 if answer.status().details is None:
            remedy = (
                "install its definitions with kubectl apply -k daemonset/crds; kubectl gpuward "
                "preflight says what is there"
            )
            raise CommandError(f"this cluster does not know gpuward's objects; {remedy}")
        case 403 if Told.BY_ADMISSION in told(said):
            raise CommandError(f"{said}; ask who runs this admission policy or webhook")
        case 403 if Told.IMPERSONATION in told(said):
            remedy = "ask for the right to impersonate, or leave out --as (`as` of the kubeconfig)"
            raise CommandError(f"not allowed: {said}; {remedy}")
        case 403:
            raise CommandError(
                f"not allowed: {said}; {_remedy(answer, role, least, writes)}", forbidden=True
            )
        case 401:
            raise CommandError(f"not logged in: {said}; renew the credentials of this kubeconfig")
        case 0:
            remedy = "check the cluster's address in the kubeconfig, --context and the network"
            if "CERTIFICATE_VERIFY_FAILED" in said:
                remedy = "check certificate-authority and tls-server-name of the kubeconfig"
            raise CommandError(f"{said}; {remedy}")
        case 400 | 422 if lost := refused_fields(answer.body):
            raise CommandError(
                f"the definitions in this cluster are older than this command and do not know "
                f"{some(lost)}; bring them up to date with kubectl apply -k daemonset/crds"
            )
        case 409:
            raise CommandError(
                f"somebody else changed it at the same moment ({said}); try again", outrun=True
            )
        case code if code >= 500 or code == 429:
            raise CommandError(f"the API server could not answer ({said}); try again in a moment")
    raise CommandError(said)


def _remedy(answer: Answer, role: str, least: str, writes: bool) -> str:
    """Which of the roles that ship would allow it (daemonset/base/viewer-operator-roles.yaml)."""
    details = answer.status().details
    kind = details.kind if details is not None else ""
    seen = kind in _VIEWED
    wanted = least if seen and not writes else role
    if not wanted or (writes and not seen):
        return "this is for cluster administrators"
    return f"ask for the ClusterRole {wanted}"


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""


class _Reviewed(msgspec.Struct, frozen=True, rename="camel"):
    user_info: _UserInfo = _UserInfo()


class SelfSubjectReview(msgspec.Struct, frozen=True):
    """Whom the API server takes somebody for."""

    status: _Reviewed = _Reviewed()


_RECORD: Final = frozenset({"at", "ended"})
"""Fields that tell who said what and when, and without which everything works."""


def only_record(answer: Answer) -> bool:
    """Whether nothing but such fields made the API server refuse what was written."""
    lost = refused_fields(answer.body) if answer.code in {400, 422} else ()
    return bool(lost) and all(field.rpartition(".")[2] in _RECORD for field in lost)


def without_record(body: Any) -> Any:
    """A body for definitions that do not know them yet."""
    if isinstance(body, dict):
        return {key: without_record(item) for key, item in body.items() if key not in _RECORD}
    return [without_record(item) for item in body] if isinstance(body, list) else body
