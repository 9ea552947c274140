"""One cluster for the tests of a module that only look."""

from collections.abc import Iterator

import pytest

from tests.support.remediator.kubectl_cluster import Kubectl, cluster
from tests.support.remediator.kubectl_fleet import load_fleet


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """A node in every state that the commands explain."""
    with cluster(tmp_path_factory.mktemp("fleet"), load_fleet) as kubectl:
        yield kubectl
