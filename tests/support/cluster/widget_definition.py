"""A custom resource for tests of the simulated API server: widgets."""

from tests.support.cluster.provider_definitions import COUNT, FREE, TEXT, fields
from tests.support.cluster.provider_definitions import definition as defined

WIDGETS = "/apis/example.io/v1/widgets"


def definition():
    spec = fields(
        ("size",),
        size=COUNT,
        color={**TEXT, "enum": ["red", "blue"], "default": "red"},
        notes={"type": "object", "additionalProperties": TEXT},
        free=FREE,
        nested=fields(depth={**COUNT, "default": 3}),
    )
    made = defined(
        "example.io", "v1", "Widget", scope="Cluster", spec=spec, status=fields(phase=TEXT)
    )
    made["spec"]["names"]["shortNames"] = ["wd"]
    return made


def widget(name="w1", **spec):
    return {
        "apiVersion": "example.io/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"size": 3, **spec},
    }
