"""The agent's watch of its node, on a server that ends every watch."""

import time

from agent.publish.node_watch import NodeWatch
from hack.sim.cluster.errors import ApiError
from tests.support.agent.publish_parts import a_server

NODE = "gpu-1"


def test_a_watch_that_always_expires_backs_off() -> None:
    """The successful read before each watch must not reset the back-off."""
    with a_server(defined=False) as server:
        server.add_node(NODE)
        expired = server.faults.fail(
            ApiError(410, "Expired", "too old resource version"),
            path="/api/v1/nodes$",
            times=None,
        )
        seen: list[str] = []
        watch = NodeWatch(
            server.kube,
            NODE,
            on_node=lambda node: seen.append(node.metadata.name),
            on_gone=lambda: None,
            on_missing=lambda _: None,
            on_trouble=lambda _: None,
        )
        watch.start()
        time.sleep(2.5)
        watch.close()
        assert 2 <= expired.hits <= 6
        assert expired.hits <= len(seen) <= expired.hits + 1
