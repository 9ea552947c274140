"""Real pynvml code over the simulated library: what each state of the node makes the calls say."""

import ctypes
import time

import pynvml
import pytest

from hack.sim.driver import NODES, device_files, install, pci_functions, set_gpu, set_node


@pytest.fixture
def path(tmp_path):
    copy = tmp_path / "node.yaml"
    copy.write_bytes((NODES / "h100-8-nvswitch.yaml").read_bytes())
    return copy


@pytest.fixture
def driver(path):
    with install(path) as driver:
        yield driver


@pytest.fixture
def gpu(driver):
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(3)


def code(function, *arguments):
    """The NVML return code of a pynvml call."""
    try:
        function(*arguments)
    except pynvml.NVMLError as error:
        return error.value
    return 0


def field(handle, *fields):
    answers = pynvml.nvmlDeviceGetFieldValues(handle, list(fields))
    return [answer.nvmlReturn or answer.value.uiVal for answer in answers]


@pytest.mark.parametrize(
    ("branch", "function", "arguments"),
    [
        (535, pynvml.nvmlDeviceGetCurrentClocksEventReasons, ()),
        (565, pynvml.nvmlDeviceGetTemperatureV, (0,)),
        (570, pynvml.nvmlDeviceGetMarginTemperature, ()),
        (580, pynvml.nvmlDeviceGetRepairStatus, ()),
        (590, pynvml.nvmlDeviceGetUnrepairableMemoryFlag_v1, ()),
    ],
    ids=lambda value: str(getattr(value, "__name__", value)),
)
def test_a_symbol_exists_from_its_branch_on(path, branch, function, arguments):
    for version, expected in ((branch - 1, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND), (branch, 0)):
        set_node(path, driver={"version": f"{version}.10", "cuda": "13.0", "nvml": "1"})
        with install(path):
            pynvml.nvmlInit()
            assert code(function, pynvml.nvmlDeviceGetHandleByIndex(0), *arguments) == expected


@pytest.mark.parametrize(
    ("structure", "function"),
    [
        (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.nvmlDeviceGetGpuFabricInfoV),
        (pynvml.c_nvmlEccSramErrorStatus_v1_t, pynvml.nvmlDeviceGetSramEccErrorStatus),
    ],
    ids=["fabric", "sram"],
)
def test_a_structure_of_another_version_is_refused(gpu, structure, function):
    value = structure()
    assert code(function, gpu, ctypes.byref(value)) == 0
    value.version += 1
    assert code(function, gpu, ctypes.byref(value)) == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def test_signals_follow_the_file(gpu, path):
    set_gpu(
        path,
        3,
        temperature={"gpu": 91, "margin": -4, "slowdown_margin": -2},
        ecc={
            "volatile": {"dram_uncorrected": 2, "sram_uncorrected": 1},
            "sram_threshold_exceeded": True,
        },
        remap={"uncorrectable": 8, "failure": True, "histogram": [639, 0, 0, 0, 1]},
        pcie={"generation": 5, "width": 4, "replays": 17},
        nvlink={"count": 18, "down": [7], "crc": {7: 12, 8: 1}},
        clock_events=["hw_slowdown", "hw_thermal"],
        recovery_action=2,
    )
    assert pynvml.nvmlDeviceGetTemperatureV(gpu, 0) == 91
    assert pynvml.nvmlDeviceGetMarginTemperature(gpu) == -4
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(gpu) == 0x48
    assert pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu) == 4
    assert pynvml.nvmlDeviceGetRowRemapperHistogram(gpu).none == 1
    assert pynvml.nvmlDeviceGetNvLinkState(gpu, 7) == 0
    assert field(
        gpu,
        pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
        pynvml.NVML_FI_DEV_ECC_DBE_VOL_DEV,
        pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER,
        (pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, 7),
        (pynvml.NVML_FI_DEV_NVLINK_GET_STATE, 7),
        (pynvml.NVML_FI_DEV_NVLINK_GET_STATE, 99),
    ) == [2, 2, 17, 12, 0, 3]
    (margin,) = pynvml.nvmlDeviceGetFieldValues(
        gpu, [pynvml.NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT]
    )
    assert margin.value.siVal == -2


@pytest.mark.parametrize(
    ("fault", "temperature", "uuid"),
    [
        pytest.param({"lost": True}, 15, 15, id="lost"),
        pytest.param({"reset_required": True}, 16, 0, id="reset required"),
        pytest.param({"unplugged": True}, 15, 15, id="unplugged"),
        pytest.param({"errors": {"nvmlDeviceGetTemperature": 3}}, 3, 0, id="one call"),
    ],
)
def test_a_broken_gpu_answers_with_its_code_and_the_others_go_on(
    gpu, path, fault, temperature, uuid
):
    other = pynvml.nvmlDeviceGetHandleByIndex(4)
    set_gpu(path, 3, **fault)
    assert code(pynvml.nvmlDeviceGetTemperature, gpu, 0) == temperature
    assert code(pynvml.nvmlDeviceGetUUID, gpu) == uuid
    assert pynvml.nvmlDeviceGetTemperature(other, 0) == 36


def test_a_lost_gpu_keeps_its_index_until_initialised_again_an_unplugged_one_does_not(gpu, path):
    set_gpu(path, 3, lost=True)
    set_gpu(path, 5, unplugged=True)
    assert pynvml.nvmlDeviceGetCount() == 8
    assert code(pynvml.nvmlDeviceGetHandleByIndex, 3) == pynvml.NVML_ERROR_GPU_IS_LOST
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 7
    assert code(pynvml.nvmlDeviceGetHandleByIndex, 3) == pynvml.NVML_ERROR_GPU_IS_LOST
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(5)).endswith("e106")


def test_a_driver_restart_makes_every_handle_stale_until_initialised_again(gpu, path):
    set_node(path, driver_restart=1)
    assert code(pynvml.nvmlDeviceGetTemperature, gpu, 0) == pynvml.NVML_ERROR_UNINITIALIZED
    assert code(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 8
    assert code(pynvml.nvmlDeviceGetTemperature, gpu, 0) == pynvml.NVML_ERROR_INVALID_ARGUMENT


def test_a_call_hangs_for_one_gpu_only(gpu, path):
    other = pynvml.nvmlDeviceGetHandleByIndex(4)
    set_gpu(path, 3, hang_s={"nvmlDeviceGetTemperature": 60})
    pynvml.nvmlDeviceGetTemperature(other, 0)
    set_gpu(path, 3, hang_s={"nvmlDeviceGetTemperature": 0.2})
    began = time.monotonic()
    pynvml.nvmlDeviceGetTemperature(gpu, 0)
    assert time.monotonic() - began >= 0.2


def test_mig_instances(tmp_path):
    with install(NODES / "h100-8-mig.yaml"):
        pynvml.nvmlInit()
        split = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetMigMode(split) == [1, 1]
        instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(split, 1)
        assert pynvml.nvmlDeviceGetUUID(instance).startswith("MIG-")
        assert pynvml.nvmlDeviceGetGpuInstanceId(instance) == 2
        assert (
            code(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, split, 5)
            == pynvml.NVML_ERROR_NOT_FOUND
        )


def test_the_pci_bus_and_the_device_files_agree_with_the_driver(path):
    set_gpu(path, 3, lost=True)
    set_gpu(path, 4, lost=True, pci_view__view="absent")
    set_gpu(path, 5, unplugged=True)
    set_gpu(path, 6, pci_view__driver="vfio-pci")
    functions = {function.address: function for function in pci_functions(path)}
    assert len(functions) == 6
    assert functions["0000:1b:00.0"].config_space_ok
    assert functions["0000:1b:00.0"].vendor == 0x10DE
    assert functions["0000:1b:00.0"].device_class == 0x0302
    assert not functions["0000:61:00.0"].config_space_ok
    assert functions["0000:d1:00.0"].driver == "vfio-pci"
    assert device_files(path) == [f"/dev/nvidia{minor}" for minor in (0, 1, 2, 3, 7)]
