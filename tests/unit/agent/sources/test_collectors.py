"""All collectors of one agent: events of one collector start polls of others."""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from agent.daemon.event_queue import EventQueue, Item
from agent.daemon.sources import Collectors
from agent.settings import AgentSettings, add_options, settings_of
from agent.sources.machine import UdevMonitor
from hack.sim.driver import set_gpu
from rules.judge.observation import Inventory, TopologySeen

WITHIN_S = 30.0
Until = Callable[[int], None]


class Announcer(UdevMonitor):
    """udev with events from the test."""

    def start(self) -> None:
        self.announce = self._on_change


def settings(*arguments: str, udev: str) -> AgentSettings:
    parser = argparse.ArgumentParser()
    add_options(parser, {}, collectors_only=True)
    return replace(settings_of(parser.parse_args(arguments)), udev=udev)


@contextmanager
def seven_gpus(path: Path, udev: str, *flags: str) -> Iterator[tuple[list[Announcer], Until]]:
    """Collectors of a node without its eighth GPU, a function that sends a udev event, and one
    that waits until NVML has read a number of GPUs.
    """
    set_gpu(path, 7, unplugged=True)
    event_queue: EventQueue[Item] = EventQueue()
    announcers: list[Announcer] = []

    def monitor(
        on_change: Callable[[bool], None], on_lost: Callable[[Exception], None]
    ) -> UdevMonitor:
        announcers.append(Announcer(on_change, on_lost))
        return announcers[0]

    def until(count: int) -> None:
        deadline, gpus = time.monotonic() + WITHIN_S, -1
        while (left_s := deadline - time.monotonic()) > 0:
            match event_queue.get(left_s):
                case Inventory(gpus=found):
                    gpus = len(found)
                case TopologySeen() if gpus == count:
                    return
        raise AssertionError(f"NVML never enumerated {count} GPUs")

    given = settings(f"--nvml=sim:{path}", "--kmsg=off", *flags, udev=udev)
    collectors = Collectors(given, event_queue, udev=monitor)
    collectors.start(past_within_s=0.0)
    try:
        until(7)
        yield announcers, until
    finally:
        collectors.close_log()
        collectors.close(WITHIN_S)


def test_a_gpu_that_is_plugged_in_is_enumerated_when_udev_announces_it(path: Path) -> None:
    with seven_gpus(path, "auto") as (announcers, until):
        set_gpu(path, 7, unplugged=False)
        announcers[0].announce(True)
        until(8)


def test_without_udev_a_gpu_that_the_driver_is_bound_to_since_is_enumerated(path: Path) -> None:
    with seven_gpus(path, "off", "--poll=1") as (_, until):
        set_gpu(path, 7, unplugged=False)
        until(8)
