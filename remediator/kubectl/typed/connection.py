"""The way to the API server that a person means, as kubectl would go it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from remediator.kube.access import Access, AccessError
from remediator.kube.api import Api
from remediator.kube.clock import SystemClock
from remediator.kube.kubeconfig import Acting
from remediator.kube.pace import Pace, Rates
from remediator.kubectl.cluster import Cluster
from remediator.kubectl.command import CommandError, Manner


@asynccontextmanager
async def connect(
    kubeconfig: str | None,
    context: str | None,
    manner: Manner,
    acting: Acting | None = None,
) -> AsyncIterator[Cluster]:
    """A connection as kubectl would make it; CommandError 64 for an unusable configuration.

    `acting` is whom to act as instead of what the kubeconfig says.
    """
    clock = SystemClock(first_agreeing=1)
    access = Access(kubeconfig, context, acting)
    try:
        await access.load()
    except AccessError as error:
        raise CommandError(str(error), exit_code=64) from error
    api = Api(access, clock, Pace(Rates(per_second={}), clock))
    await api.open()
    try:
        yield Cluster(api, clock, manner)
    finally:
        await api.close()
