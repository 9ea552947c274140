"""What the Kubernetes library leaves out of a kubeconfig: the chosen context, and as whom we act.

The library authenticates; it knows no impersonation (`as:`), goes on without credentials when an
exec login gave none, and of several files takes the last one's `current-context`. Read as kubectl
does: the first file that names something wins, `current-context` too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import yaml

from remediator.kube.plain_login import PlainLogin, plain_login

MOST_GROUPS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """Whom the API server is to take us for; nobody else where `user` is empty.

    Kubernetes refuses groups, uid or extra without a user.
    """

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, str], ...] = ()

    def headers(self) -> list[tuple[str, str]]:
        """The impersonation headers of the Kubernetes API, one per group and extra value."""
        found = [("Impersonate-User", self.user)] if self.user else []
        found += [("Impersonate-Group", group) for group in self.groups]
        found += [("Impersonate-Uid", self.uid)] if self.uid else []
        return found + [
            (f"Impersonate-Extra-{quote(key.lower(), safe='')}", value)
            for key, value in self.extra
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenContext:
    """The context in force, as far as we need it."""

    name: str = ""
    namespace: str = ""
    acting: Acting = Acting()
    exec_login: str = ""
    """The command of an exec login; empty where the user section has none."""
    plain: PlainLogin | None = None
    """How to log in, where the files say it plainly; None: only the library knows."""
    known: tuple[str, ...] = ()
    """The names of all contexts there are."""


def chosen_context(path: str, name: str | None) -> ChosenContext:
    """The named context, else the current one; an empty one where the files name none.

    `path` may be several files joined by `:`. Raises ValueError for an `as-groups` or
    `as-user-extra` without `as`: the API server would refuse every request. Raises OSError and
    yaml.YAMLError for files that cannot be read; the library reads them first.
    """
    contexts: dict[str, Any] = {}
    users: dict[str, Any] = {}
    clusters: dict[str, Any] = {}
    folders: dict[tuple[str, str], Path] = {}
    current = ""
    for part in path.split(":"):
        if not part or not (file := Path(part).expanduser()).exists():
            continue
        said = yaml.safe_load(file.read_text(encoding="utf-8"))
        if not isinstance(said, dict):
            continue
        sections = (("contexts", contexts), ("users", users), ("clusters", clusters))
        for section, found in sections:
            for item in said.get(section) or ():
                found.setdefault(str(item.get("name")), item.get(section[:-1]) or {})
                folders.setdefault((section, str(item.get("name"))), file.parent.absolute())
        current = current or str(said.get("current-context") or "")
    context = contexts.get(name or current) or {}
    user = users.get(str(context.get("user"))) or {}
    login = user.get("exec") or {}
    cluster, its = str(context.get("cluster")), str(context.get("user"))
    plain = None
    if cluster in clusters and its in users:
        homes = {folders["clusters", cluster], folders["users", its]}
        # Of two folders a relative name in either could be meant.
        if len(homes) == 1:
            plain = plain_login(clusters[cluster], users[its], homes.pop())
    return ChosenContext(
        name=name or current,
        namespace=str(context.get("namespace") or ""),
        acting=_acting(user),
        exec_login=str(login.get("command") or "") if isinstance(login, dict) else "",
        plain=plain,
        known=tuple(contexts),
    )


def _acting(user: dict[str, Any]) -> Acting:
    extra = user.get("as-user-extra") or {}
    acting = Acting(
        user=str(user.get("as") or ""),
        groups=tuple(str(group) for group in user.get("as-groups") or ())[:MOST_GROUPS],
        uid=str(user.get("as-uid") or ""),
        extra=tuple((str(key), str(one)) for key, values in extra.items() for one in values or ()),
    )
    if acting.headers() and not acting.user:
        raise ValueError("as-groups, as-uid and as-user-extra need as: beside them")
    return acting
