"""Which version of gpuward this is."""

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from rules.api import names


@cache
def release_version() -> str:
    """The installed version; `source` in a checkout that is not installed."""
    try:
        return version("gpuward")
    except PackageNotFoundError:
        return "source"


def user_agent() -> str:
    """Program, version and platform, so that an API server's audit log names us."""
    release = release_version()
    system = f"{platform.system().lower()}/{platform.machine()}"
    return f"{names.COMPONENT_REMEDIATOR}/{release} ({system}) python/{platform.python_version()}"
