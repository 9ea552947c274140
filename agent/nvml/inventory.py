"""Guarded calls of the driver, and the inventory of GPUs, read at start and on refresh.

Used by the child. It announces each call first, so that the parent can report which call of which
GPU hangs. A failed call returns its code. A GPU that is lost during enumeration keeps the data of
the last enumeration.
"""

import time
from collections.abc import Callable
from ctypes import c_void_p, cast
from typing import Any, NamedTuple, TypeVar

import msgspec
import pynvml as nvml

from agent.nvml import messages
from agent.nvml.messages import Calling, FromChild, Meaning, meaning
from rules.judge.observation import CallFailed, GpuSeen
from rules.text import pci_address

T = TypeVar("T")
Send = Callable[[FromChild], None]


class DriverGoneError(Exception):
    """The driver was unloaded under the process: only a new process can continue."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} returned {code}")
        self.fact = CallFailed(at=time.time(), call=call, code=code, of_driver=True)


class Absent(msgspec.Struct, frozen=True):
    """A signal that could not be read, with NVML's return code (3 not supported, 15 lost, ...).

    Code 13 also means that the driver is too old; no call was made then.
    """

    code: int


Value = int | float | str | tuple[int | None, ...] | Absent
"""A reading. A tuple has a value per link (None: not readable) or is a histogram; see
`rules.catalog.signals`.
"""


class Device(GpuSeen, frozen=True, kw_only=True):
    """One GPU as enumerated. Strings that could not be read are empty, numbers None.

    A GPU that was lost during enumeration has an empty `uuid` and only an `index` and maybe `pci`.
    """

    numa: int | None = None
    links: int = 0
    events: int = 0
    """Bits of the events that the GPU supports."""


class Failed(NamedTuple):
    """A call that returned an NVML code instead of a result."""

    call: str
    code: int

    @property
    def meaning(self) -> Meaning:
        """What the code means for the GPU or the field."""
        return meaning(self.code)

    @property
    def absent(self) -> Absent:
        """The reading that records this failure."""
        return Absent(self.code)

    def of(self, device: Device) -> CallFailed:
        """Return the fact that this call failed for a GPU."""
        return CallFailed(
            at=time.time(), call=self.call, code=self.code, gpu=device.uuid, pci=device.pci
        )


class Caller:
    """Makes calls and announces each to the parent first."""

    def __init__(self, send: Send) -> None:
        self.send = send

    def __call__(
        self, symbol: str, function: Callable[..., T], *arguments: Any, gpu: str = ""
    ) -> T | Failed:
        """Return the result of `function(*arguments)`, or a Failed.

        Raises DriverGoneError on a code that makes every handle stale.
        """
        self.send(Calling(call=symbol, gpu=gpu))
        try:
            return function(*arguments)
        except nvml.NVMLError as error:
            failed = Failed(symbol, int(error.value))
        if failed.meaning is Meaning.DRIVER_GONE:
            raise DriverGoneError(symbol, failed.code)
        return failed

    def text(
        self, symbol: str, function: Callable[..., str], *arguments: Any, gpu: str = ""
    ) -> str:
        """Return the string result; empty if the call failed, escaped if it is not UTF-8."""
        result = self(symbol, lambda: text(function, *arguments), gpu=gpu)
        return "" if isinstance(result, Failed) else result

    def number(
        self, symbol: str, function: Callable[..., int], *arguments: Any, gpu: str = ""
    ) -> int | None:
        """Return the number result; None if the call failed."""
        result = self(symbol, function, *arguments, gpu=gpu)
        return None if isinstance(result, Failed) else result


def text(function: Callable[..., str], *arguments: Any) -> str:
    """Call a string getter of pynvml and escape bytes that it cannot decode."""
    try:
        return function(*arguments)
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "backslashreplace")


MAX_LINKS = 36
MAX_MIG_DEVICES = 16
"""Twice as many as any GPU has."""
GUESTS = {1: "passthrough", 2: "vgpu"}
"""Values of nvmlGpuVirtualizationMode_t in a guest."""


class Gpu(NamedTuple):
    """A device and its handle; None while the GPU does not enumerate."""

    device: Device
    handle: Any

    @property
    def key(self) -> str:
        """Its name in messages: the UUID, else the PCI address, else the index."""
        return self.device.uuid or self.device.pci or f"index {self.device.index}"


def handle_value(handle: Any) -> int:
    """Return the pointer as a number, to find the GPU of an event."""
    return cast(handle, c_void_p).value or 0


def enumerate_gpus(call: Caller, known: list[Gpu]) -> list[Gpu]:
    """Return every GPU that NVML counts, in index order.

    Raises DriverGoneError if the count fails or no GPU can be opened.
    """
    count = call("nvmlDeviceGetCount_v2", nvml.nvmlDeviceGetCount)
    if isinstance(count, Failed):
        if count.code == messages.GPU_NOT_FOUND:
            return []
        raise DriverGoneError(count.call, count.code)
    # After the count changed an index may be another GPU.
    known = known if len(known) == count else []
    gpus: list[Gpu] = []
    refused: list[Failed] = []
    for index in range(count):
        handle = call("nvmlDeviceGetHandleByIndex_v2", nvml.nvmlDeviceGetHandleByIndex, index)
        if not isinstance(handle, Failed):
            gpus.append(Gpu(_describe(call, index, handle), handle))
            continue
        if handle.code in messages.OF_EVERY_GPU:
            refused.append(handle)
        unknown = Gpu(Device(index=index, uuid="", pci=""), None)
        gpus.append(known[index] if index < len(known) else unknown)
    if refused and len(refused) == count:
        raise DriverGoneError(refused[0].call, refused[0].code)
    return gpus


def _describe(call: Caller, index: int, handle: Any) -> Device:
    uuid = call.text("nvmlDeviceGetUUID", nvml.nvmlDeviceGetUUID, handle)

    def string(symbol: str) -> str:
        return call.text(symbol, getattr(nvml, symbol), handle, gpu=uuid)

    def number(symbol: str) -> int | None:
        return call.number(symbol, getattr(nvml, symbol), handle, gpu=uuid)

    pci = call.text(
        "nvmlDeviceGetPciInfo_v3", lambda: nvml.nvmlDeviceGetPciInfo(handle).busId, gpu=uuid
    )
    mode = call("nvmlDeviceGetMigMode", nvml.nvmlDeviceGetMigMode, handle, gpu=uuid)
    mig = None if isinstance(mode, Failed) else bool(mode[0])
    architecture = number("nvmlDeviceGetArchitecture")
    return Device(
        index=index,
        uuid=uuid,
        pci=pci_address.full_address(pci),
        serial=string("nvmlDeviceGetSerial"),
        product=string("nvmlDeviceGetName"),
        board=string("nvmlDeviceGetBoardPartNumber"),
        vbios=string("nvmlDeviceGetVbiosVersion"),
        module_id=number("nvmlDeviceGetModuleId"),
        minor=number("nvmlDeviceGetMinorNumber"),
        architecture=architecture,
        mig_mode=mig,
        mig_devices=_mig_devices(call, handle, uuid) if mig else (),
        numa=_numa(call, handle, uuid),
        links=_links(call, handle, uuid),
        events=number("nvmlDeviceGetSupportedEventTypes") or 0,
    )


def _mig_devices(call: Caller, handle: Any, uuid: str) -> tuple[str, ...]:
    """Return the UUIDs of the MIG devices of a GPU."""
    count = call.number(
        "nvmlDeviceGetMaxMigDeviceCount", nvml.nvmlDeviceGetMaxMigDeviceCount, handle, gpu=uuid
    )
    found = []
    for index in range(min(count or 0, MAX_MIG_DEVICES)):
        device = call(
            "nvmlDeviceGetMigDeviceHandleByIndex",
            nvml.nvmlDeviceGetMigDeviceHandleByIndex,
            handle,
            index,
            gpu=uuid,
        )
        if not isinstance(device, Failed):  # the places of devices that were removed are empty
            found.append(call.text("nvmlDeviceGetUUID", nvml.nvmlDeviceGetUUID, device, gpu=uuid))
    return tuple(filter(None, found))


def _numa(call: Caller, handle: Any, uuid: str) -> int | None:
    """Return the host's NUMA node nearest to the GPU.

    It is read from the memory affinity, because nvmlDeviceGetNumaNodeId returns the node of the
    GPU's own memory, which only coherent GPUs have.
    """
    scope = nvml.NVML_AFFINITY_SCOPE_NODE
    masks = call(
        "nvmlDeviceGetMemoryAffinity", nvml.nvmlDeviceGetMemoryAffinity, handle, 1, scope, gpu=uuid
    )
    if isinstance(masks, Failed) or not masks[0]:
        return None
    lowest: int = masks[0] & -masks[0]
    return lowest.bit_length() - 1


def _links(call: Caller, handle: Any, uuid: str) -> int:
    answer = call(
        "nvmlDeviceGetFieldValues",
        nvml.nvmlDeviceGetFieldValues,
        handle,
        [nvml.NVML_FI_DEV_NVLINK_LINK_COUNT],
        gpu=uuid,
    )
    if isinstance(answer, Failed) or answer[0].nvmlReturn:
        return 0
    return min(int(answer[0].value.uiVal), MAX_LINKS)


def virtualization(call: Caller, gpus: list[Gpu]) -> str:
    """Return the kind of guest: `passthrough` or `vgpu`; `none` on a host."""
    for gpu in gpus:
        mode = None
        if gpu.handle is not None:
            mode = call.number(
                "nvmlDeviceGetVirtualizationMode",
                nvml.nvmlDeviceGetVirtualizationMode,
                gpu.handle,
                gpu=gpu.key,
            )
        if mode is not None:
            return GUESTS.get(mode, "none")
    return "none"


def excluded(call: Caller) -> list[str]:
    """Return the PCI addresses that the driver is configured to exclude."""
    count = call.number("nvmlGetExcludedDeviceCount", nvml.nvmlGetExcludedDeviceCount) or 0

    def address(index: int) -> str:
        return text(lambda: nvml.nvmlGetExcludedDeviceInfoByIndex(index).pci.busId)

    found = [
        call.text("nvmlGetExcludedDeviceInfoByIndex", address, index) for index in range(count)
    ]
    return [pci_address.full_address(pci) for pci in found if pci]
