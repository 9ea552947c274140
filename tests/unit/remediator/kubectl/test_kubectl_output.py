"""Output formats as `kubectl get -o` has them, deprecated names, and global options."""

import re
from typing import Any

import pytest

from remediator.kubectl import output
from remediator.kubectl.command import COMMANDS
from tests.support.remediator.kubectl_cluster import Kubectl, run_command
from tests.support.remediator.kubectl_objects import BLOCKED, HEALTHY

ITEMS: list[dict[str, Any]] = [
    {
        "metadata": {"name": "a", "labels": {"example.com/rack": "a17"}},
        "health": "Unhealthy",
        "people": ("held", "paused"),
        "gpus": 8,
        "cordoned": True,
    },
    {"metadata": {"name": "b"}, "health": "Healthy", "people": (), "gpus": 4, "cordoned": None},
]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{.items[*].metadata.name}", "a b"),
        (".items[*].metadata.name", "a b"),
        ("{$.kind}: {.items[-1].metadata.name}", "List: b"),
        ('{range .items[*]}{.metadata.name}{"\\t"}{.gpus}{"\\n"}{end}', "a\t8\nb\t4\n"),
        ("{range .items[*]}{range .people[*]}{@},{end};{end}", "held,paused,;;"),
        ('{.items[?(@.health=="Unhealthy")].metadata.name}', "a"),
        ("{.items[?(@.health != 'Unhealthy')].metadata.name}", "b"),
        ("{.items[?(@.cordoned==true)].gpus}", "8"),
        (r"{.items[0].metadata.labels.example\.com/rack}", "a17"),
        ("{.items[0]['metadata']['name']}{.items[1:].gpus}", "a4"),
        ("{.items[0].people}", '["held", "paused"]'),
        ("{.items[7].gpus}{.items[*].missing}{.kind.x}{.items[1].cordoned}", ""),
    ],
)
def test_jsonpath_prints_what_kubectl_prints(template: str, expected: str) -> None:
    form = f"jsonpath={template}"
    assert output.checked(form, ()) == form
    assert output.rendered(ITEMS, form) == expected


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("jsonpath={..name}", "cannot be read at '..name'"),
        ("jsonpath={.items[*", "unclosed"),
        ("jsonpath={range .items[*]}x", "{range} and {end} do not match"),
        ("jsonpath={end}", "{range} and {end} do not match"),
        ("jsonpath={foo}", "supported are .field"),
        ("custom-columns=NAME", "is not HEADER:PATH"),
        ("custom-columns=NAME:.a[", "cannot be read"),
        ("xml", "'xml' is not one of name, json, yaml, wide, jsonpath=, custom-columns="),
    ],
)
def test_a_format_that_is_not_supported_is_wrong_use(form: str, expected: str) -> None:
    code, out, err = run_command("fleet", "-o", form)
    assert (code, out, err.count("\n")) == (64, "", 1)
    assert expected in err


def test_custom_columns_are_a_table() -> None:
    form = "custom-columns=NODE:.metadata.name,HEALTH:{.health},RACK:metadata.labels.rack"
    assert output.rendered(ITEMS, form).splitlines() == [
        "NODE   HEALTH      RACK",
        "a      Unhealthy   <none>",
        "b      Healthy     <none>",
    ]


def test_hostile_text_is_escaped_in_every_format() -> None:
    items = [{"metadata": {"name": "a\x1b[2J\nb"}}]
    for form in ("name", "json", "yaml", "jsonpath={.items[0].metadata.name}",
                 "custom-columns=N:.metadata.name"):  # fmt: skip
        assert "\x1b" not in output.rendered(items, form)


def test_names_can_be_passed_to_another_command(fleet: Kubectl) -> None:
    code, out, _ = fleet("why", BLOCKED, HEALTHY, "-o", "name")
    assert (code, out.split()) == (0, [f"node/{BLOCKED}", f"node/{HEALTHY}"])
    assert f"node/{HEALTHY}" in fleet("fleet", "-o", "name")[1].split()
    unhealthy = 'jsonpath={.items[?(@.health=="Unhealthy")].metadata.name}'
    assert BLOCKED in fleet("fleet", "-o", unhealthy)[1].split()


@pytest.mark.parametrize(("old", "new"), [(c.formerly, c.name) for c in COMMANDS if c.formerly])
def test_a_former_name_works_and_prints_the_new_one(fleet: Kubectl, old: str, new: str) -> None:
    renamed = fleet(new, HEALTHY, "--reason", "x", "--dry-run")
    code, out, err = fleet(old, HEALTHY, "--reason", "x", "--dry-run")
    first, _, rest = err.partition("\n")
    assert (code, out, rest) == renamed
    assert first == f"kubectl gpuward {old} is deprecated; use kubectl gpuward {new}"
    assert re.search(rf"^ +{old}\b", run_command()[1], re.MULTILINE) is None


def test_global_options_are_listed_once() -> None:
    code, out, err = run_command("options")
    assert (code, err) == (0, "")
    assert all(one in out for one in ("--kubeconfig", "--context", "--as", "--namespace"))
    for command in COMMANDS:
        shown = run_command(command.name, "--help")[1]
        assert "--kubeconfig" not in shown
        assert 'Use "kubectl gpuward options" for a list of global options' in shown
        assert shown.index("examples:") < shown.index("options:") < shown.index("usage:")
        assert command.brief[0].isupper()
