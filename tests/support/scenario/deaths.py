"""What a leader leaves behind that dies before one of its writes, for each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rules.api.writes import EmitEvent, Write
from tests.support.scenario.session_world import World

W = TypeVar("W", bound=World)


def deaths(world: W, live: Callable[[], object]) -> list[tuple[Write, W]]:
    """Each write of that life, with the cluster as a leader leaves it that dies before it.

    Events are left out: nothing rests on them, so that whoever dies before one leaves what one
    leaves that dies before the write after it.
    """
    found: list[tuple[Write, W]] = []

    def before(write: Write) -> None:
        if not isinstance(write, EmitEvent):
            found.append((write, world.fork()))

    world.before_each = before
    live()
    world.before_each = None
    return found
