"""The node file: read again when it changes, kept when it breaks, changed in one step."""

import pytest

from hack.sim.driver import NODES, NodeFile, set_gpu


@pytest.fixture
def path(tmp_path):
    copy = tmp_path / "node.yaml"
    copy.write_bytes((NODES / "h100-8-nvswitch.yaml").read_bytes())
    return copy


@pytest.mark.parametrize("path", sorted(NODES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_node_is_valid_and_healthy(path):
    node = NodeFile(path).current()
    stem = path.stem.split("-")
    assert len(node.gpus) == int(stem[1])
    assert (
        len({gpu.uuid for gpu in node.gpus}) == len({gpu.pci for gpu in node.gpus}) == int(stem[1])
    )
    assert not any(gpu.lost or gpu.reset_required or gpu.recovery_action for gpu in node.gpus)


def test_an_edit_is_read_at_the_next_poll(path):
    file = NodeFile(path)
    set_gpu(path, 3, temperature__gpu=88, remap__failure=True)
    gpu = file.current().gpus[3]
    assert (gpu.temperature.gpu, gpu.remap and gpu.remap.failure) == (88, True)
    assert gpu.temperature.slowdown == 87, "what the edit did not name keeps its default"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("gpus: [", "while parsing", id="no YAML"),
        pytest.param("", "expected a mapping with", id="emptied"),
        pytest.param("driver: {version: a, cuda: b, nvml: c}", "gpus", id="a part is missing"),
    ],
)
def test_a_broken_edit_keeps_the_last_good_node_and_is_reported_once(path, capsys, text, expected):
    file = NodeFile(path)
    good = file.current()
    path.write_text(text)
    assert file.current() is good
    assert file.current() is good
    output = capsys.readouterr().err
    assert output.count("\n") == 1
    assert expected in output
    assert "last good description stays in force" in output


def test_a_description_with_a_repeated_key_is_refused_with_its_place(tmp_path):
    path = tmp_path / "node.yaml"
    path.write_text("gpus: 8\ndriver: a\ngpus: 4\n")
    with pytest.raises(ValueError, match="gpus is given twice, in lines 1 and 3"):
        NodeFile(path)
