"""A kubelet's PodResources API, v1, on a unix socket: a real gRPC server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

METHOD = "/v1.PodResourcesLister/List"
_STRING, _MESSAGE, _INT64 = 9, 11, 3
# name: fields by number; kubernetes/kubelet, pkg/apis/podresources/v1/api.proto
_MESSAGES: Mapping[str, tuple[tuple[int, str, int | str, bool], ...]] = {
    "ListPodResourcesResponse": ((1, "pod_resources", "PodResources", True),),
    "PodResources": (
        (1, "name", _STRING, False),
        (2, "namespace", _STRING, False),
        (3, "containers", "ContainerResources", True),
        (4, "cpu_ids", _INT64, True),
    ),
    "ContainerResources": (
        (1, "name", _STRING, False),
        (2, "devices", "ContainerDevices", True),
        (3, "cpu_ids", _INT64, True),
        (5, "dynamic_resources", "DynamicResource", True),
    ),
    "ContainerDevices": (
        (1, "resource_name", _STRING, False),
        (2, "device_ids", _STRING, True),
        (3, "topology", "TopologyInfo", False),
    ),
    "TopologyInfo": ((1, "nodes", "NUMANode", True),),
    "NUMANode": ((1, "ID", _INT64, False),),
    "DynamicResource": (
        (2, "claim_name", _STRING, False),
        (3, "claim_namespace", _STRING, False),
        (4, "claim_resources", "ClaimResource", True),
    ),
    "ClaimResource": (
        (1, "cdi_devices", "CDIDevice", True),
        (2, "driver_name", _STRING, False),
        (3, "pool_name", _STRING, False),
        (4, "device_name", _STRING, False),
    ),
    "CDIDevice": ((1, "name", _STRING, False),),
}


@cache
def _response() -> type:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="api.proto", package="v1", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind, repeated in fields:
            message.field.add(
                name=field,
                number=number,
                label=3 if repeated else 1,
                type=_MESSAGE if isinstance(kind, str) else kind,
                type_name=f".v1.{kind}" if isinstance(kind, str) else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found: type = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("v1.ListPodResourcesResponse")
    )
    return found


def encoded(pods: Iterable[Mapping[str, Any]]) -> bytes:
    """The response of a kubelet with these pods."""
    data: bytes = _response()(pod_resources=pods).SerializeToString()
    return data


def pod(
    name: str,
    *ids: str,
    namespace: str = "train",
    resource: str = "nvidia.com/gpu",
    claims: Iterable[tuple[str, str]] = (),
    driver: str = "gpu.nvidia.com",
) -> dict[str, Any]:
    """A pod with device IDs of a plugin, and (claim, device) of DRA."""
    dra = [
        {
            "claim_name": claim,
            "claim_namespace": namespace,
            "claim_resources": [
                {
                    "cdi_devices": [{"name": f"k8s.{driver}/claim=x-{device}"}],
                    "driver_name": driver,
                    "pool_name": "n1",
                    "device_name": device,
                }
            ],
        }
        for claim, device in claims
    ]
    topology = {"nodes": [{"ID": 0}, {"ID": 1}]}
    devices = [{"resource_name": resource, "device_ids": ids, "topology": topology}]
    main = {
        "name": "main",
        "devices": devices if ids else [],
        "cpu_ids": [2, 3, 500],
        "dynamic_resources": dra,
    }
    return {
        "name": name,
        "namespace": namespace,
        "containers": [{"name": "sidecar"}, main],
        "cpu_ids": [1],
    }


class Kubelet:
    """Serves `pods`; `hangs` keeps every call waiting, `fails` refuses it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.pods: list[dict[str, Any]] = []
        self.calls = 0
        self.fails = False
        self.hangs = threading.Event()
        self.hangs.set()

    def __enter__(self) -> Kubelet:
        import grpc

        handler = grpc.unary_unary_rpc_method_handler(self._list)
        service, method = METHOD.strip("/").split("/")
        self._server: Any = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {method: handler}),)
        )
        self._server.add_insecure_port(f"unix:{self.path}")
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hangs.set()
        self._server.stop(0).wait()

    def _list(self, request: bytes, context: Any) -> bytes:
        import grpc

        assert request == b""
        self.calls += 1
        self.hangs.wait()
        if self.fails:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests")
        return encoded(self.pods)


def answering(listener: Any, answer: bytes | Callable[[Any], None]) -> threading.Thread:
    """Answer each connection of a listening socket with these bytes, whatever it asks."""

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer, suppress(OSError):
                if callable(answer):
                    answer(peer)
                else:
                    peer.recv(65536)
                    peer.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread
