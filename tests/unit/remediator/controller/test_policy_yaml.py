"""Whatever stands in a policy file: a policy or sentences, never an exception."""

import pytest

from remediator.policy_file import decode_policy
from rules.policy.policy import Policy

TOO_MANY = "p: holds 2 policies without metadata.name; the fleet has exactly one"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("mode: Shadow\nmode: Enforce\n",
                     "p: is not YAML: mode is given twice, in lines 1 and 2; keep", id="twice"),
        pytest.param("budget:\n  minimum: 1\n  maxUnavailable: {percent: 5, percent: 50}\n",
                     "p: is not YAML: budget.maxUnavailable.percent is given twice", id="deep"),
        pytest.param("[" * 5_000, "p: is nested too deeply", id="nested"),
        pytest.param("- " * 20_000, "p: is nested too deeply", id="nested very deeply"),
        pytest.param("mode: 2020-99-99\n", "p: is not YAML: month must be", id="no date"),
        pytest.param("mode: [", "p: is not YAML", id="torn"),
        pytest.param('mode: !!int ""\n', "p: is not YAML", id="an empty number"),
        pytest.param('mode: !!float ""\n', "p: is not YAML", id="an empty fraction"),
        pytest.param("mode: !!bool foo\n", "p: is not YAML", id="no truth"),
        pytest.param("mode: !!timestamp x\n", "p: is not YAML", id="no moment"),
        pytest.param("mode: !!omap x\n", "p: is not YAML", id="no map"),
        pytest.param("mode: [\n", "p: is not YAML: while parsing a flow node, expected the node "
                     "content, but found '<stream end>' (line 2, column 1)", id="where"),
        pytest.param("a: 1\n---\nb: 2\n", TOO_MANY, id="two documents"),
        pytest.param("\x00", "p: is not YAML", id="no text"),
        pytest.param('budget:\n  minimum: "\\ud83d"\n', "p: is not YAML: found an incomplete "
                     "UTF-16 surrogate pair (line 2, column 12)", id="half of a value"),
        pytest.param('repair: {mode: "Off", steps: {"\\ud800": {}}}\n', "p: is not YAML: found",
                     id="half of a key"),
        pytest.param("budgets: {}\n", "p: budgets is not a known key; did you mean budget?",
                     id="unknown"),
    ],
)  # fmt: skip
def test_a_yaml_error_has_its_position(text: str, message: str) -> None:
    for given in (text, text.encode()):
        found = decode_policy(given, "p")
        assert not isinstance(found, Policy)
        assert found[0].startswith(message)


@pytest.mark.parametrize("text", ["", "# nothing\n", "mode: Enforce\n"])
def test_what_is_right_is_a_policy(text: str) -> None:
    assert isinstance(decode_policy(text, "p"), Policy)


STREAM = """apiVersion: v1
kind: Service
metadata: {name: s}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: gpuward-policy}
data: {policy.yaml: "mode: %s"}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "mode: Enforce\n---\nmode: Shadow\n",
            TOO_MANY,
        ),
        (f"mode: Enforce\n---\n{STREAM % 'Shadow'}", "p: holds 2 policies; give it one of them"),
        ("kind: QuarantinePolcy\nmode: Enforce\n",
         "p: kind is wrong: invalid enum value 'QuarantinePolcy'; did you mean QuarantinePolicy?"),
        (f"{STREAM % 'Enforce'}kind: ConfigMap\n",
         "p: is not YAML: kind is given twice, in lines 6 and 9; keep one of them"),
    ],
)  # fmt: skip
def test_an_error_in_one_of_several_documents_names_it(text: str, message: str) -> None:
    assert decode_policy(text, "p", config_map=True) == [message]


def test_a_policy_without_a_kind_is_found_among_other_objects() -> None:
    found = decode_policy("kind: Service\n---\nmode: Enforce\n", "p", config_map=True)
    assert isinstance(found, Policy)
    assert found.mode == "Enforce"


def test_walk_the_policy_is_found_in_what_kustomize_prints() -> None:
    found = decode_policy(STREAM % "Enforce", "p", config_map=True)
    assert isinstance(found, Policy)
    assert found.mode == "Enforce"
    wrong = decode_policy(STREAM % "enforce", "p", config_map=True)
    assert isinstance(wrong, list)
    assert wrong[0].startswith("p, policy.yaml: mode is wrong")


SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(STREAM + "---\n" + STREAM, "holds 2 policies", id="two"),
        pytest.param(
            f"{SERVICE}---\n{SERVICE}",
            "holds no policy and no ConfigMap with policy.yaml, but Service; name the file",
            id="manifests without one",
        ),
        pytest.param("a: 1\n---\nb: 2\n", "holds no policy and", id="something"),
        pytest.param("a: [\n---\n", "is not YAML: while parsing", id="torn"),
        pytest.param(SERVICE, "but Service; name the file", id="an object"),
        pytest.param(
            "kind: Kustomization\nresources: [a]\n", "kubectl kustomize DIR |", id="an overlay"
        ),
        pytest.param("kind: List\nitems: []\n", "holds no policy and", id="an empty list"),
    ],
)
def test_what_is_no_policy_is_called_by_its_name_with_the_way_to_check_it(
    text: str, message: str
) -> None:
    found = decode_policy(text.replace("%s", "Shadow"), "p", config_map=True)
    assert isinstance(found, list)
    (sentence,) = found
    assert message in sentence
    assert "byte string" not in sentence


@pytest.mark.parametrize(
    "text",
    [
        "---\nmode: Enforce\n---\n",
        f"{SERVICE}---\nkind: QuarantinePolicy\nmode: Enforce\n",
        "kind: List\nitems:\n- kind: ConfigMap\n  data: {policy.yaml: 'mode: Enforce'}\n",
    ],
)
def test_the_one_policy_is_found_wherever_it_stands(text: str) -> None:
    found = decode_policy(text, "p", config_map=True)
    assert isinstance(found, Policy)
    assert found.mode == "Enforce"


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("1:30", "base 60"),
        ("1:30.5", "base 60"),
        ("010", "base 8"),
        (str(2**63), "64 bits"),
        (str(-(2**63) - 1), "64 bits"),
    ],
)
def test_a_number_that_yaml_reads_as_another_is_refused(number: str, message: str) -> None:
    problem = str(decode_policy(f"budget: {{minimum: {number}}}", "p.yaml"))
    assert message in problem
