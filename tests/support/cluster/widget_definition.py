"""A custom resource for tests of the simulated API server: widgets."""

from __future__ import annotations

import copy

WIDGETS = "/apis/example.io/v1/widgets"
SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer"},
                "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                "label": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "tags": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
                "notes": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "since": {"type": "string", "format": "date-time"},
                "nested": {
                    "type": "object",
                    "properties": {"depth": {"type": "integer", "default": 3}},
                },
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}},
                    },
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {"phase": {"type": "string"}, "seen": {"type": "integer"}},
        },
    },
}


def definition(**version):
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.io"},
        "spec": {
            "group": "example.io",
            "scope": "Cluster",
            "names": {
                "plural": "widgets",
                "kind": "Widget",
                "shortNames": ["wd"],
                "categories": ["all"],
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": copy.deepcopy(SCHEMA)},
                    "subresources": {"status": {}},
                    **version,
                }
            ],
        },
    }


def widget(name="w1", **spec):
    return {
        "apiVersion": "example.io/v1",
        "kind": "Widget",
        "metadata": {"name": name},
        "spec": {"size": 3, **spec},
    }
