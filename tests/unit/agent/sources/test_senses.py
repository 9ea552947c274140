"""All senses of one agent together: what one of them hears makes another one look."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from agent.daemon.inbox import Inbox, Item
from agent.daemon.sources import Senses
from agent.settings import AgentSettings, add_options, settings_of
from agent.sources.machine import UdevMonitor
from hack.sim.driver import set_gpu
from rules.judge.observation import Inventory, TopologySeen

WITHIN_S = 30.0


class Announcer(UdevMonitor):
    """udev where the test announces."""

    def start(self) -> None:
        self.announce = self._on_change


def settings(*arguments: str) -> AgentSettings:
    parser = argparse.ArgumentParser()
    add_options(parser, {}, senses_only=True)
    return replace(settings_of(parser.parse_args(arguments)), udev="auto")


def until(inbox: Inbox[Item], wanted: Callable[[object], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while (left_s := deadline - time.monotonic()) > 0:
        item = inbox.get(left_s)
        if wanted(item):
            return
    raise AssertionError("never said by NVML")


def test_a_gpu_that_is_plugged_in_is_enumerated_when_udev_announces_it(path: Path) -> None:
    set_gpu(path, 7, unplugged=True)
    inbox: Inbox[Item] = Inbox()
    announcers: list[Announcer] = []

    def monitor(
        on_change: Callable[[bool], None], on_lost: Callable[[Exception], None]
    ) -> UdevMonitor:
        announcers.append(Announcer(on_change, on_lost))
        return announcers[0]

    senses = Senses(settings(f"--nvml=sim:{path}", "--kmsg=off"), inbox, udev=monitor)
    senses.start(past_within_s=0.0)
    try:
        until(inbox, lambda said: isinstance(said, Inventory) and len(said.gpus) == 7)
        until(inbox, lambda said: isinstance(said, TopologySeen))
        set_gpu(path, 7, unplugged=False)
        announcers[0].announce(False)
        until(inbox, lambda said: isinstance(said, Inventory) and len(said.gpus) == 7)
        until(inbox, lambda said: isinstance(said, TopologySeen))
        announcers[0].announce(True)
        until(inbox, lambda said: isinstance(said, Inventory) and len(said.gpus) == 8)
    finally:
        senses.close_log()
        senses.close(WITHIN_S)
