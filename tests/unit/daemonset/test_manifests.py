"""Posting manifests: order, kinds, merging, and a clear word about what cannot be posted."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.sim.cluster.http.resource_calls import InProcessClient
from hack.sim.cluster.resource import CONFIGMAPS, Resource
from hack.sim.cluster.store.engine import Engine
from hack.sim.manifests import post_manifests, read_manifests

WIDGETS = Resource("example.com", "v1", "widgets", True, "Widget")

DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {size: {type: integer}}}
"""
WIDGET = """
apiVersion: example.com/v1
kind: Widget
metadata: {name: w, namespace: shop}
spec: {size: 1}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red}
"""


@pytest.fixture
def client() -> InProcessClient:
    return InProcessClient(Engine())


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


async def test_definitions_and_namespaces_go_first(
    client: InProcessClient, tmp_path: Path
) -> None:
    folder = write(tmp_path, a_widget=WIDGET, z_definition=DEFINITION)
    await post_manifests(client, read_manifests(folder))
    assert (await client.get(WIDGETS, "w", "shop"))["spec"] == {"size": 1}
    assert (await client.get(CONFIGMAPS, "settings", "default"))["data"] == {"colour": "red"}


async def test_posting_again_merges(client: InProcessClient, tmp_path: Path) -> None:
    folder = write(tmp_path, a=WIDGET, b=DEFINITION)
    await post_manifests(client, read_manifests(folder))
    await client.patch(CONFIGMAPS, "settings", {"data": {"shape": "round"}}, "default")
    write(tmp_path, a=WIDGET.replace("red", "blue"))
    await post_manifests(client, read_manifests(folder))
    assert (await client.get(CONFIGMAPS, "settings", "default"))["data"] == {
        "colour": "blue",
        "shape": "round",
    }
