"""The CRDs in daemonset/crds match the types of the API objects."""

import msgspec
import pytest

from hack.crds.generate import crds
from rules.api import health as health_object


def unbounded(schema: dict[str, object], path: str = "") -> list[str]:
    """Paths of strings and lists without a limit."""
    found = []
    if schema.get("type") == "string" and not {"maxLength", "enum"} & set(schema):
        found.append(path)
    if schema.get("type") == "array":
        if "maxItems" not in schema:
            found.append(path)
        found += unbounded(schema["items"], f"{path}[]")  # type: ignore[arg-type]
    for name, child in schema.get("properties", {}).items():  # type: ignore[attr-defined]
        found += unbounded(child, f"{path}.{name}")
    return found


@pytest.mark.parametrize("crd", crds().values(), ids=lambda crd: crd["spec"]["names"]["kind"])
def test_every_string_and_list_of_spec_and_status_is_bounded(crd: dict[str, dict]) -> None:
    """The size of an object stays within the limits of etcd and CEL."""
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    parts = {key: schema[key] for key in ("spec", "status") if key in schema}

    assert parts
    assert [] == [path for key, part in parts.items() for path in unbounded(part, key)]


def test_empty_values_are_omitted_and_false_is_kept() -> None:
    """The API server denies null without `nullable`; `active: false` has a meaning."""
    status = health_object.HealthStatus(
        incidents=(health_object.IncidentStatus(id="1", reason="R"),)
    )

    sent = health_object.plain(status)

    assert False is sent["incidents"][0]["active"]
    assert {"mig", "nvidia", "closedAt", "gpus"}.isdisjoint(sent["incidents"][0])
    assert status == msgspec.convert(sent, health_object.HealthStatus)
