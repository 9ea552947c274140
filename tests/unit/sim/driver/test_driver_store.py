"""The node file: read again when it changes, kept when it breaks, changed in one step."""

from __future__ import annotations

import pytest

from hack.sim.driver import NODES, NodeFile, push_event, set_gpu, set_node


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


def test_an_edit_is_seen_at_the_next_look(path):
    file = NodeFile(path)
    set_gpu(path, 3, temperature__gpu=88, remap__failure=True)
    gpu = file.current().gpus[3]
    assert (gpu.temperature.gpu, gpu.remap and gpu.remap.failure) == (88, True)
    assert gpu.temperature.slowdown == 87, "what the edit did not name keeps its default"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("gpus: [", "while parsing", id="no YAML"),
        pytest.param("", "a mapping with", id="emptied"),
        pytest.param("driver: {version: a, cuda: b, nvml: c}", "gpus", id="a part is missing"),
    ],
)
def test_a_broken_edit_keeps_the_last_good_node_and_says_so_once(path, capsys, text, said):
    file = NodeFile(path)
    good = file.current()
    path.write_text(text)
    assert file.current() is good
    assert file.current() is good
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert said in told
    assert "last good description stays in force" in told


def test_a_file_that_goes_away_keeps_the_last_good_node(path, capsys):
    file = NodeFile(path)
    good = file.current()
    path.unlink()
    assert file.current() is good
    assert "node.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "where"),
    [
        pytest.param({"temprature": {"gpu": 3}}, "temprature", id="unknown key"),
        pytest.param({"remap": {"failure": "maybe"}}, "$.gpus[0].remap.failure", id="wrong type"),
        pytest.param({"clock_events": ["tired"]}, "tired", id="unknown clock event"),
    ],
)
def test_a_mistake_is_named_with_its_place(path, change, where):
    with pytest.raises(ValueError, match="gpus") as error:
        set_gpu(path, 0, **change)
    assert where in str(error.value)
    remap = NodeFile(path).current().gpus[0].remap
    assert remap is not None
    assert remap.failure is False, "the file was left alone"


def test_an_unknown_event_type_is_named(path):
    with pytest.raises(ValueError, match="meteor"):
        push_event(path, "meteor", 0, 1)


def test_events_get_increasing_ids(path):
    push_event(path, "xid", 3, 79)
    push_event(path, "driver_bind")
    events = NodeFile(path).current().events
    assert [(event.id, event.type, event.gpu, event.data) for event in events] == [
        (1, "xid", 3, 79),
        (2, "driver_bind", None, 0),
    ]


def test_node_fields_can_be_set(path):
    set_node(path, init_error=9, virtualization="passthrough")
    node = NodeFile(path).current()
    assert (node.init_error, node.virtualization) == (9, "passthrough")


def test_a_description_that_says_a_thing_twice_is_refused_with_its_place(tmp_path):
    path = tmp_path / "node.yaml"
    path.write_text("gpus: 8\ndriver: a\ngpus: 4\n")
    with pytest.raises(ValueError, match="gpus is given twice, in lines 1 and 3"):
        NodeFile(path)
