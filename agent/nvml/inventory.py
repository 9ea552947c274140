"""The guarded way into the driver, and which GPUs there are: asked at start and on refresh.

Run by the child. Each call is announced first, which lets the parent say which call of which GPU
hangs; a failure becomes a code. A GPU that is lost while it is enumerated keeps what an earlier
round learned.
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
    """The driver went away under the process: nothing but a fresh process helps."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} gave {code}")
        self.fact = CallFailed(at=time.time(), call=call, code=code, of_driver=True)


class Absent(msgspec.Struct, frozen=True):
    """A signal that could not be read, with NVML's return code (3 not supported, 15 lost, ...).

    Code 13 also stands for "this driver is too old for it"; nothing was asked then.
    """

    code: int


Value = int | float | str | tuple[int | None, ...] | Absent
"""A reading. Tuples are per link (None: not readable) or a histogram; see
`rules.catalog.signals`.
"""


class Device(GpuSeen, frozen=True, kw_only=True):
    """One GPU as enumerated. Strings that the driver would not give are empty, numbers None.

    A GPU that answers nothing (lost while enumerating) has an empty `uuid`; its `index` and, where
    the driver still tells it, `pci` are all there is.
    """

    numa: int | None = None
    links: int = 0
    events: int = 0
    """Supported event bits, as the driver reports them."""


class Failed(NamedTuple):
    """A call that returned an NVML code instead of a result."""

    call: str
    code: int

    @property
    def meaning(self) -> Meaning:
        """What the code says about the GPU or the field."""
        return meaning(self.code)

    @property
    def absent(self) -> Absent:
        """The reading that stands for this failure."""
        return Absent(self.code)

    def of(self, device: Device) -> CallFailed:
        """The fact that this call about this GPU failed."""
        return CallFailed(
            at=time.time(), call=self.call, code=self.code, gpu=device.uuid, pci=device.pci
        )


class Caller:
    """Makes calls and tells the parent about each before it is made."""

    def __init__(self, send: Send) -> None:
        self.send = send

    def __call__(
        self, symbol: str, function: Callable[..., T], *arguments: Any, gpu: str = ""
    ) -> T | Failed:
        """The result of `function(*arguments)`, or why there is none.

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
        """The same for strings: empty where there is none, escaped where it is not UTF-8."""
        result = self(symbol, lambda: text(function, *arguments), gpu=gpu)
        return "" if isinstance(result, Failed) else result

    def number(
        self, symbol: str, function: Callable[..., int], *arguments: Any, gpu: str = ""
    ) -> int | None:
        """The same for numbers: None where there is none."""
        result = self(symbol, function, *arguments, gpu=gpu)
        return None if isinstance(result, Failed) else result


def text(function: Callable[..., str], *arguments: Any) -> str:
    """Call a string getter of pynvml, whose decoding of the driver's bytes may itself fail."""
    try:
        return function(*arguments)
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "backslashreplace")


MAX_LINKS = 36
GUESTS = {1: "passthrough", 2: "vgpu"}
"""nvmlGpuVirtualizationMode_t of a guest."""


class Gpu(NamedTuple):
    """A device with the handle to ask it by; no handle while it does not enumerate."""

    device: Device
    handle: Any

    @property
    def key(self) -> str:
        """What messages call it: the UUID, else the PCI address, else the index."""
        return self.device.uuid or self.device.pci or f"index {self.device.index}"


def handle_value(handle: Any) -> int:
    """The pointer's number, to recognise a handle that comes back with an event."""
    return cast(handle, c_void_p).value or 0


def enumerate_gpus(call: Caller, known: list[Gpu]) -> list[Gpu]:
    """Every GPU NVML counts, in index order.

    Raises DriverGoneError where it cannot count, or where not one of them may be opened.
    """
    count = call("nvmlDeviceGetCount_v2", nvml.nvmlDeviceGetCount)
    if isinstance(count, Failed):
        if count.code == messages.GPU_NOT_FOUND:
            return []
        raise DriverGoneError(count.call, count.code)
    # Where their number changed, an index may mean another GPU than before.
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

    def words(symbol: str) -> str:
        return call.text(symbol, getattr(nvml, symbol), handle, gpu=uuid)

    def number(symbol: str) -> int | None:
        return call.number(symbol, getattr(nvml, symbol), handle, gpu=uuid)

    pci = call.text(
        "nvmlDeviceGetPciInfo_v3", lambda: nvml.nvmlDeviceGetPciInfo(handle).busId, gpu=uuid
    )
    mig = call("nvmlDeviceGetMigMode", nvml.nvmlDeviceGetMigMode, handle, gpu=uuid)
    architecture = number("nvmlDeviceGetArchitecture")
    return Device(
        index=index,
        uuid=uuid,
        pci=pci_address.full_address(pci),
        serial=words("nvmlDeviceGetSerial"),
        product=words("nvmlDeviceGetName"),
        board=words("nvmlDeviceGetBoardPartNumber"),
        vbios=words("nvmlDeviceGetVbiosVersion"),
        module_id=number("nvmlDeviceGetModuleId"),
        minor=number("nvmlDeviceGetMinorNumber"),
        architecture=architecture,
        mig_mode=None if isinstance(mig, Failed) else bool(mig[0]),
        numa=_numa(call, handle, uuid),
        links=_links(call, handle, uuid),
        events=number("nvmlDeviceGetSupportedEventTypes") or 0,
    )


def _numa(call: Caller, handle: Any, uuid: str) -> int | None:
    """The host's NUMA node nearest to the GPU.

    From the memory affinity, not from nvmlDeviceGetNumaNodeId: that names the GPU's own memory
    node, which only coherent parts have.
    """
    scope = nvml.NVML_AFFINITY_SCOPE_NODE
    words = call(
        "nvmlDeviceGetMemoryAffinity", nvml.nvmlDeviceGetMemoryAffinity, handle, 1, scope, gpu=uuid
    )
    if isinstance(words, Failed) or not words[0]:
        return None
    lowest: int = words[0] & -words[0]
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
    """Whether this is a guest: `passthrough` or `vgpu`; `none` on the metal and on a
    hypervisor.
    """
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
    """The PCI addresses the driver was told to leave alone."""
    count = call.number("nvmlGetExcludedDeviceCount", nvml.nvmlGetExcludedDeviceCount) or 0

    def address(index: int) -> str:
        return text(lambda: nvml.nvmlGetExcludedDeviceInfoByIndex(index).pci.busId)

    found = [
        call.text("nvmlGetExcludedDeviceInfoByIndex", address, index) for index in range(count)
    ]
    return [pci_address.full_address(pci) for pci in found if pci]
