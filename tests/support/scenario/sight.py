"""What takes a node, or its mark, out of the sight of both watches of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rules.api.names import LABEL_QUARANTINE
from tests.support.scenario.fleets import NODE
from tests.support.scenario.server.apiserver import encoded
from tests.support.scenario.session_world import ROOMY, World, policy_of


def leave(world: World) -> None:
    world.label(NODE, pool=None, spare="yes")


def unlabel(world: World) -> None:
    """Somebody sets the node's labels anew, ours are gone."""
    world.nodes[NODE]["metadata"]["labels"].pop(LABEL_QUARANTINE, None)
    world.touch(world.nodes[NODE])


def unlabel_and_leave(world: World) -> None:
    world.nodes[NODE]["metadata"]["labels"].pop(LABEL_QUARANTINE, None)
    leave(world)


def deselect(world: World) -> None:
    """The policy is about others now."""
    world.policy = policy_of(budget=ROOMY, nodeSelector="pool=elsewhere")


def recreate(world: World) -> None:
    """Another machine of the same name, beside the pool."""
    world.add_node(NODE)


@contextmanager
def watches_forgotten(world: World) -> Iterator[None]:
    """The server forgot the version of every watch (410), and what happens meanwhile no watch
    shows.
    """
    world.run(2)
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "metadata": {}}
    for shown in world._collections.values():
        for watch in shown.watches:
            watch.say("ERROR", encoded(gone))
        shown.watches.clear()
    yield
    world.run(2)
