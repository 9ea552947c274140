"""Ask the kubelet which pods hold which devices: List of its PodResources API, v1.

gRPC over a unix socket, with h2 for HTTP/2. The API has one request and few messages: a gRPC
library would cost the agent 6 MiB of memory instead of 1 (decision 0109). Time and size of a call
and the number of decoded fields are limited. One thread; `rules` resolves devices to GPUs.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from rules.judge.observation import (
    AssignedDevice,
    PodDevices,
    PodResourcesSeen,
    SourceChanged,
    SourceName,
    SourceState,
)

if TYPE_CHECKING:
    from h2.connection import H2Connection
    from h2.events import Event

SOCKET: Final = "/var/lib/kubelet/pod-resources/kubelet.sock"
AUTO: Final = "auto"
METHOD: Final = "/v1.PodResourcesLister/List"
POLL_S: Final = 10.0
"""While an incident asks for a cordon or drain."""
IDLE_S: Final = 300.0
"""Otherwise, to know before a fault whether the API answers."""
RETRY_S: Final = 60.0
WITHIN_S: Final = 5.0
MAX_BYTES: Final = 4 * 1024 * 1024
"""Of a response with its frames. The limit of gRPC clients; 250 pods need about 100 KiB."""
MAX_FIELDS: Final = 200_000
MAX_PODS: Final = 512
MAX_DEVICES: Final = 256
"""Devices of one pod."""
MAX_ID_CHARS: Final = 128
CHUNK_BYTES: Final = 64 * 1024

NO_SOCKET: Final = "NoSocket"
NO_ACCESS: Final = "NoAccess"
NO_ANSWER: Final = "NoAnswer"
REFUSED: Final = "Refused"
TOO_LARGE: Final = "TooLarge"
GARBLED: Final = "Garbled"

_PREFIX_BYTES: Final = 5
"""Before each gRPC message: one byte for compression, four for the length."""
_NO_MESSAGE: Final = bytes(_PREFIX_BYTES)
"""ListPodResourcesRequest, which has no fields."""
_HEADERS: Final = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", METHOD),
    (":authority", "localhost"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("grpc-timeout", f"{WITHIN_S:.0f}S"),
)


class CallError(Exception):
    """A call failed; the text is a CamelCase reason."""


def call(path: str, within_s: float = WITHIN_S, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the ListPodResourcesResponse of the kubelet. Raises CallError."""
    deadline = time.monotonic() + within_s
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(within_s)
            peer.connect(path)
            return _exchange(peer, deadline, max_bytes)
    except FileNotFoundError as error:
        raise CallError(NO_SOCKET) from error
    except PermissionError as error:
        raise CallError(NO_ACCESS) from error
    except OSError as error:
        raise CallError(NO_ANSWER) from error


def _exchange(peer: socket.socket, deadline: float, max_bytes: int) -> bytes:
    """Send the request and return the message of the response."""
    # Imported here: a node without the socket needs no HTTP/2.
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.exceptions import H2Error

    connection = H2Connection(H2Configuration(client_side=True))
    connection.initiate_connection()
    stream = connection.get_next_available_stream_id()
    connection.send_headers(stream, _HEADERS)
    connection.send_data(stream, _NO_MESSAGE, end_stream=True)
    answer, received = _Answer(connection), 0
    while not answer.complete:
        if (left_s := deadline - time.monotonic()) <= 0:
            raise CallError(NO_ANSWER)
        peer.settimeout(left_s)
        peer.sendall(connection.data_to_send())
        if not (data := peer.recv(CHUNK_BYTES)):
            raise CallError(NO_ANSWER)
        received += len(data)
        if received > max_bytes:  # h2 buffers frames of up to 16 MiB
            raise CallError(TOO_LARGE)
        try:
            for event in connection.receive_data(data):
                answer.take(event)
        except (H2Error, ValueError, LookupError) as error:
            raise CallError(GARBLED) from error
    return answer.message()


class _Answer:
    """The response to the one request of a connection."""

    def __init__(self, connection: H2Connection) -> None:
        self._connection = connection
        self._body = bytearray()
        self._status = b""
        self.complete = False

    def take(self, event: Event) -> None:
        """Take an event of the connection. Raises CallError."""
        from h2 import events

        if isinstance(event, events.ResponseReceived | events.TrailersReceived):
            headers = {_bytes(name): _bytes(value) for name, value in event.headers or ()}
            if headers.get(b":status", b"200") != b"200":
                raise CallError(REFUSED)
            self._status = headers.get(b"grpc-status", self._status)
        elif isinstance(event, events.DataReceived):
            self._body += event.data or b""
            self._connection.acknowledge_received_data(
                event.flow_controlled_length or 0, event.stream_id or 0
            )
        elif isinstance(event, events.StreamEnded):
            self.complete = True
        elif isinstance(event, events.StreamReset | events.ConnectionTerminated):
            raise CallError(REFUSED)

    def message(self) -> bytes:
        """Return the message of a successful call. Raises CallError."""
        if self._status != b"0":
            raise CallError(REFUSED)
        length = int.from_bytes(self._body[1:_PREFIX_BYTES], "big")
        if self._body[:1] != b"\0" or len(self._body) != _PREFIX_BYTES + length:
            raise CallError(GARBLED)
        return bytes(self._body[_PREFIX_BYTES:])


def _bytes(text: bytes | str) -> bytes:
    return text.encode() if isinstance(text, str) else text


class _Reader:
    """Reads protobuf fields, of all messages together at most `MAX_FIELDS`."""

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def messages(self, data: bytes, wanted: int) -> Iterator[bytes]:
        """Yield the embedded messages of a field number."""
        return (value for number, value in self.fields(data) if number == wanted)

    def fields(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield number and content of each string, bytes or message field; skip the others.

        Raises ValueError if the data is not protobuf or has too many fields.
        """
        at = 0
        while at < len(data):
            self._left -= 1
            if self._left < 0:
                raise ValueError("too many fields")
            key, at = _varint(data, at)
            wire_type = key & 7
            if wire_type == 0:
                _, at = _varint(data, at)
            elif wire_type in (1, 5):
                at += 8 if wire_type == 1 else 4
            elif wire_type == 2:
                length, at = _varint(data, at)
                if length <= len(data) - at:
                    yield key >> 3, data[at : at + length]
                at += length
            else:
                raise ValueError(f"wire type {wire_type}")
        if at != len(data):
            raise ValueError("a field is cut")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        if at + place >= len(data):
            break
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("not a varint")


def read_list(message: bytes, at: float) -> PodResourcesSeen:
    """Return the pods with devices of a ListPodResourcesResponse.

    Raises ValueError if it is not one. Field numbers: kubernetes/kubelet,
    pkg/apis/podresources/v1/api.proto.
    """
    reader, cut = _Reader(), False
    pods: list[PodDevices] = []
    for pod in reader.messages(message, 1):
        found, too_many = _pod(reader, pod)
        cut |= too_many or (len(pods) == MAX_PODS and bool(found.plugin or found.dra))
        if len(pods) < MAX_PODS and (found.plugin or found.dra):
            pods.append(found)
    return PodResourcesSeen(at=at, pods=tuple(pods), cut=cut)


def _pod(reader: _Reader, message: bytes) -> tuple[PodDevices, bool]:
    """Return the pod and whether it has more devices than are kept."""
    name = namespace = ""
    plugin: list[tuple[str, str]] = []
    dra: list[AssignedDevice] = []
    for number, value in reader.fields(message):
        if number == 1:
            name = _text(value)
        elif number == 2:
            namespace = _text(value)
        elif number == 3:
            for inner, devices in reader.fields(value):
                if inner == 2:
                    plugin += _plugin_devices(reader, devices)
                elif inner == 5:
                    dra += _dra_devices(reader, devices)
    pod = PodDevices(
        namespace=namespace,
        pod=name,
        plugin=tuple(dict.fromkeys(plugin))[:MAX_DEVICES],
        dra=tuple(dra[:MAX_DEVICES]),
    )
    return pod, max(len(plugin), len(dra)) > MAX_DEVICES


def _plugin_devices(reader: _Reader, message: bytes) -> Iterator[tuple[str, str]]:
    fields = list(reader.fields(message))
    resource = next((_text(value) for number, value in fields if number == 1), "")
    return ((resource, _text(value)) for number, value in fields if number == 2)


def _dra_devices(reader: _Reader, message: bytes) -> Iterator[AssignedDevice]:
    fields = list(reader.fields(message))
    claim = next((_text(value) for number, value in fields if number == 2), "")
    for number, value in fields:
        if number == 4:
            its = {inner: _text(text) for inner, text in reader.fields(value) if inner > 1}
            yield AssignedDevice(
                driver=its.get(2, ""), pool=its.get(3, ""), device=its.get(4, ""), claim=claim
            )


def _text(value: bytes) -> str:
    return value[: 4 * MAX_ID_CHARS].decode("utf-8", "replace")


class PodResourcesPoller:
    """Calls the kubelet in a thread and passes facts to `put`.

    With `auto`, a socket that was never there makes the source Absent.
    """

    def __init__(
        self,
        path: str,
        put: Callable[[PodResourcesSeen | SourceChanged], None],
        *,
        usual: str = SOCKET,
        poll_s: float = POLL_S,
    ) -> None:
        """`usual` is the socket of `auto`."""
        self._path = usual if path == AUTO else path
        self._poll_s = poll_s
        self._optional = path == AUTO
        self._put = put
        self._wanted = False
        self._reported: tuple[SourceState, str] | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="pod-resources", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def want(self, wanted: bool) -> None:
        """Poll every 10 s while the list is wanted, the first time at once."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._wake.set()

    def close(self) -> None:
        """Ask the thread to end; a call in progress ends within seconds."""
        self._stopping = True
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            up = self.poll()
            self._wake.wait(self._poll_s if self._wanted else IDLE_S if up else RETRY_S)

    def poll(self) -> bool:
        """Call once, pass the result on and return whether the kubelet answered."""
        try:
            seen = read_list(call(self._path), time.time())
        except CallError as error:
            self._optional &= str(error) == NO_SOCKET
            self._report(SourceState.ABSENT if self._optional else SourceState.DOWN, str(error))
            return False
        except ValueError:
            self._report(SourceState.DOWN, GARBLED)
            return False
        self._optional = False
        self._report(SourceState.UP, "")
        self._put(seen)
        return True

    def _report(self, state: SourceState, reason: str) -> None:
        if self._reported != (state, reason):
            self._reported = state, reason
            self._put(
                SourceChanged(
                    at=time.time(), source=SourceName.POD_RESOURCES, state=state, reason=reason
                )
            )
