"""`gpuward-remediator policy check`, `diff` and `rbac`: files, ConfigMaps, standard input."""

import pytest
import yaml

from remediator.cli import main
from tests.support.standard_input import standard_input

GOOD = "apiVersion: gpuward.io/v1alpha1\nkind: QuarantinePolicy\nmode: Enforce\n"
MAP = (
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: gpuward-policy}\n"
    "data:\n  policy.yaml: |\n    mode: Enforce\n    drain: {settle: 7s}\n"
)


def test_a_config_map_is_checked_by_what_it_holds(tmp_path, capsys):
    path = tmp_path / "map.yaml"
    path.write_text(MAP)
    assert main(["policy", "check", str(path)]) == 0
    assert "valid, mode Enforce" in capsys.readouterr().out
    path.write_text(MAP.replace("settle", "setle"))
    assert main(["policy", "check", str(path)]) == 64
    assert "map.yaml, policy.yaml: drain.setle is not a known key" in capsys.readouterr().err


def test_a_config_map_without_a_policy_is_reported(tmp_path, capsys):
    path = tmp_path / "map.yaml"
    path.write_text("apiVersion: v1\nkind: ConfigMap\ndata: {x: y}\n")
    assert main(["policy", "check", str(path)]) == 64
    assert "no ConfigMap with policy.yaml, but ConfigMap" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "code"), [(GOOD, 0), ("mode: Enforce\nmod: x\nmark: 7\n", 64)])
def test_a_dash_is_standard_input(text, code, capsys):
    with standard_input(text.encode()):
        assert main(["policy", "check", "-"]) == code
    output = capsys.readouterr()
    assert "standard input" in output.out + output.err
    assert output.err.count("\n") == (1 if code else 0)


def test_walk_show_takes_the_same_input_as_check_and_reports_the_defaults(tmp_path, capsys):
    """Five runbooks took the defaults for the policy in force."""
    path = tmp_path / "map.yaml"
    path.write_text(MAP)
    assert main(["policy", "show", str(path)]) == 0
    output = capsys.readouterr()
    assert "mode: Enforce" in output.out
    assert output.err == ""
    assert main(["policy", "show"]) == 0
    output = capsys.readouterr()
    assert "mode: Shadow" in output.out
    assert output.err.startswith("These are the defaults.")


def test_walk_an_empty_pipe_is_no_valid_policy(capsys):
    with standard_input(b"\n"):
        assert main(["policy", "check", "-"]) == 64
    assert "standard input: is empty" in capsys.readouterr().err


def test_walk_rbac_of_a_pipe_names_what_it_read(capsys):
    with standard_input(b"mode: Shadow\n"):
        assert main(["policy", "rbac", "-"]) == 0
    assert capsys.readouterr().err.startswith("standard input: needs these components")


POOLS = """mode: Enforce
---
metadata: {name: trial}
nodeSelector: team=t
mode: Shadow
isolate: Device
reasons: {Mistyped: {level: Report}}
"""


def test_check_and_show_name_each_policy_of_the_file(tmp_path, capsys):
    path = tmp_path / "pools.yaml"
    path.write_text(POOLS)
    assert main(["policy", "check", str(path)]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines() == [
        f"{path}: policy default: valid, mode Enforce",
        f"{path}: policy trial: valid, mode Shadow",
    ]
    reason, component = output.err.splitlines()
    assert reason.startswith(f"{path}: policy trial: note: reasons.Mistyped is no reason")
    assert component.startswith(f"{path}: policy trial: note: isolate: Device needs component")

    assert main(["policy", "show", str(path)]) == 0
    fleet, trial = yaml.safe_load_all(capsys.readouterr().out)
    assert (fleet["metadata"], fleet["mode"]) == ({"name": "default"}, "Enforce")
    assert (trial["metadata"], trial["mode"]) == ({"name": "trial"}, "Shadow")
    assert trial["nodeSelector"] == "gpuward.io/gpus,team=t"
    assert fleet.keys() - trial.keys() == {"budget", "limits"}

    path.write_text(POOLS.replace("isolate", "isolat"))
    for command in ("check", "show"):
        assert main(["policy", command, str(path)]) == 64
        assert "policy trial: isolat is not a known key" in capsys.readouterr().err
