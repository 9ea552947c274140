"""What the collectors may report, as Hypothesis strategies, and how a sequence of it is judged."""

from collections.abc import Sequence

from hypothesis import strategies as st
from msgspec.structs import replace

from rules.catalog.signals import Signal
from rules.catalog.thresholds import DEFAULT_RULES
from rules.judge.health_object import Identity
from rules.judge.judge import judge
from rules.judge.observation import (
    CallFailed,
    DcgmSeen,
    EventKind,
    GpuEvent,
    GpuSeen,
    HostSeen,
    Inventory,
    KernelGap,
    KernelLineSeen,
    KernelRead,
    NetworkPort,
    NodeSeen,
    Observation,
    PciFunction,
    PciSeen,
    Readings,
    Service,
    SourceChanged,
    SourceName,
    SourceState,
    Tick,
    TopologySeen,
)
from rules.judge.state import NodeState, initial
from rules.kernel_log.record import KernelLine, LineKind

START = 1_700_000_000.0

UUIDS = [f"GPU-{n}" for n in range(4)]
uuids = st.sampled_from([*UUIDS, *UUIDS, "", "GPU-é\n"])
pcis = st.sampled_from(["0000:10:00", "0000:11:00.0", "00000000:12:00.0", "0000:13:00.0", "", "x"])
texts = st.text(max_size=40)
boots = st.sampled_from(["boot-1", "boot-2"])
numbers = st.integers(-(2**40), 2**70) | st.integers(0, 8)
xids = st.sampled_from([13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 109, 119, 145, 149, 154, 999])
odd_values = st.one_of(
    st.none(),
    numbers,
    st.sampled_from([float("nan"), float("inf"), -1.5]),
    texts,
    st.lists(st.none() | st.integers(0, 3), max_size=20).map(tuple),
)
values = st.integers(0, 8) | odd_values
usual = st.fixed_dictionaries(
    {Signal.PRESENCE: st.sampled_from(["present", "present", "lost", "reset_required"])},
    optional={
        Signal.RECOVERY_ACTION: st.integers(0, 8),
        Signal.REMAP_FAILURE: st.integers(0, 1),
        Signal.REMAP_PENDING: st.integers(0, 1),
        Signal.CLOCK_EVENT_REASONS: st.sampled_from([0, 0x40, float("nan")]),
        Signal.ECC_UNCORRECTED_VOLATILE: st.integers(0, 3),
        Signal.NVLINK_CRC_ERRORS: st.sampled_from([0, 10**4, 10**7]),
        Signal.THERMAL_MARGIN: st.integers(-5, 30),
    },
)
lines = st.builds(
    KernelLine,
    kind=st.sampled_from([LineKind.XID] * 12 + list(LineKind)),
    text=texts,
    xid=st.none() | xids | st.integers(0, 10**6),
    sxid=st.none() | st.integers(0, 30_000),
    sxid_fatal=st.none() | st.booleans(),
    pci=st.none() | pcis,
    gpu_uuid=st.none() | uuids,
    mig_gi=st.none() | st.integers(0, 99),
    link=st.none() | st.integers(-1, 80),
    caused_by=st.none() | xids,
    recovery_to=st.none() | st.integers(0, 300),
    fatal=st.none() | st.booleans(),
    registers=st.lists(st.integers(0, 2**32 - 1), max_size=7).map(tuple),
    gpc=st.none() | st.integers(0, 9),
    tpc=st.none() | st.integers(0, 9),
    detail=st.none() | texts,
)
gpus = st.builds(
    GpuSeen,
    uuid=uuids,
    index=st.integers(-1, 99),
    pci=pcis,
    product=texts,
    serial=texts,
    architecture=st.none() | st.integers(0, 20),
    mig_mode=st.none() | st.booleans(),
)
grids = st.lists(
    st.lists(st.sampled_from(["X", "NV18", "SYS", "NV4", ""]), max_size=4).map(tuple), max_size=4
).map(tuple)
T = st.just(START)
# Facts that name types which their module does not load are made by hand: `builds` looks them up.
records = st.builds(
    lambda **given: KernelLineSeen(**given),
    at=st.floats(START - 10**5, START + 10**5),
    sequence=st.integers(-1, 400),
    boot_id=boots,
    lookback=st.booleans(),
    line=lines,
)
observations: st.SearchStrategy[Observation] = st.one_of(
    records,
    st.builds(KernelGap, at=T, lost=numbers, boot_id=boots, sequence=st.integers(-1, 500)),
    st.builds(KernelRead, at=T, boot_id=boots, sequence=st.integers(-1, 500)),
    st.builds(
        SourceChanged,
        at=T,
        source=st.sampled_from(SourceName),
        state=st.sampled_from(SourceState),
        reason=st.sampled_from(["", "Starting", "DriverAbsent", "CallHung"]),
    ),
    st.builds(
        Inventory,
        at=T,
        driver=st.sampled_from(["", "580.1", "535.1", "x"]),
        virtualization=st.sampled_from(["none", "passthrough"]),
        gpus=st.lists(gpus, max_size=9).map(tuple),
        excluded=st.lists(pcis, max_size=2).map(tuple),
    ),
    st.builds(
        TopologySeen,
        at=T,
        gpus=st.lists(uuids, max_size=4).map(tuple),
        links=grids,
        remotes=st.lists(
            st.lists(st.sampled_from(["", "gpu", "switch"]), max_size=4).map(tuple), max_size=4
        ).map(tuple),
        clusters=st.lists(texts, max_size=4).map(tuple),
        cliques=st.lists(st.none() | st.integers(0, 9), max_size=4).map(tuple),
        numa=st.lists(st.none() | st.integers(-1, 3), max_size=4).map(tuple),
    ),
    st.builds(
        Readings,
        at=T,
        gpu=uuids,
        values=usual | usual | st.dictionaries(st.sampled_from(Signal), values, max_size=12),
    ),
    st.builds(
        GpuEvent,
        at=T,
        kind=st.sampled_from(EventKind),
        data=numbers | xids,
        gpu=uuids,
        pci=pcis,
    ),
    st.builds(
        CallFailed,
        at=T,
        call=st.sampled_from(["nvmlInit_v2", "nvmlDeviceGetX"]),
        code=st.sampled_from([3, 4, 9, 14, 15, 16, 18, 999]),
        gpu=uuids,
        pci=pcis,
    ),
    st.builds(
        PciSeen,
        at=T,
        functions=st.lists(
            st.builds(
                PciFunction,
                address=pcis,
                vendor=st.just(0x10DE),
                device_class=st.sampled_from([0x0302, 0x0680]),
                driver=st.sampled_from(["", "nvidia", "vfio-pci"]),
                config_space_ok=st.none() | st.booleans(),
            ),
            max_size=6,
        ).map(tuple),
    ),
    st.builds(
        DcgmSeen,
        at=T,
        gpus=st.dictionaries(
            uuids, st.dictionaries(st.sampled_from(Signal), values, max_size=4), max_size=3
        ),
        xids=st.dictionaries(uuids, numbers, max_size=3),
    ),
    st.builds(
        NodeSeen,
        at=T,
        name=texts,
        uid=texts,
        boot_id=boots,
        annotations=st.dictionaries(
            st.sampled_from(
                ["gpuward.io/repaired", "gpuward.io/expected-gpus", "gpuward.io/release-gpu"]
            ),
            texts | st.just("2030-01-01T00:00:00Z x") | st.just("8"),
        ),
        labels=st.dictionaries(st.just("nvidia.com/mig.config.state"), st.just("pending")),
    ),
    st.builds(
        HostSeen,
        at=T,
        booted_at=st.sampled_from([0.0, START - 10, START + 10]),
        product_uuid=texts,
        services=st.dictionaries(st.sampled_from(Service), st.booleans()),
        ports=st.lists(
            st.builds(
                NetworkPort,
                name=texts,
                active=st.booleans(),
            ),
            max_size=2,
        ).map(tuple),
    ),
    st.builds(Tick, at=T),
)
steps = st.lists(
    st.tuples(
        observations, st.sampled_from([0.0, 0.01, 1.0, 1.0, 16.0, 16.0, 200.0, 8000.0, -3600.0])
    ),
    min_size=8,
    max_size=40,
)
PREAMBLE: list[tuple[Observation, float]] = [
    (SourceChanged(at=START, source=SourceName.NVML, state=SourceState.UP), 0.0),
    (
        Inventory(
            at=START,
            driver="580.1",
            gpus=tuple(
                GpuSeen(uuid=name, index=n, pci=f"0000:1{n}:00.0") for n, name in enumerate(UUIDS)
            ),
        ),
        0.0,
    ),
]
IDENTITY = Identity(agent_version="1", rules_version="1", pod="ns/p", pod_uid="u")


def run(sequence: Sequence[tuple[Observation, float]]) -> tuple[NodeState, float]:
    """Judge in order on a node with four GPUs; counted kernel records come in growing sequence."""
    now = START
    state = initial(now, boot_id="boot-1", node_name="n1")
    for number, (observation, gap) in enumerate([*PREAMBLE, *sequence]):
        now = max(1.0, now + gap)
        if isinstance(observation, KernelLineSeen):
            counted = observation.sequence >= 0
            observation = replace(observation, sequence=number if counted else -1, at=now)
        state, _ = judge(state, observation, now, DEFAULT_RULES)
    return state, now
