"""Unknown arguments are reported by their command, and duplicate keys with their lines."""

from collections.abc import Callable

import pytest
import yaml

from agent.cli import main as agent
from remediator.cli import main as remediator
from rules.text.user_input import duplicate_key

USAGE = 64
AGENT, REMEDIATOR = (agent, "gpuward-agent"), (remediator, "gpuward-remediator")


@pytest.mark.parametrize(
    ("program", "typed", "asked", "message"),
    [
        (AGENT, "check extra", " check", "unrecognized arguments: extra; it takes none"),
        (AGENT, "decode a b", " decode", "unrecognized arguments: b; it takes one FILE"),
        (AGENT, "check --jsno", " check", "unrecognized arguments: --jsno; did you mean --json?"),
        (AGENT, "chek", "", "there is no command 'chek'; did you mean check?"),
        (AGENT, "--jsno check", "", "unrecognized arguments: --jsno"),
        (REMEDIATOR, "run --lsiten=:1", " run", "did you mean --listen?"),
        (REMEDIATOR, "policy chek", " policy", "there is no action 'chek'; did you mean check?"),
        (REMEDIATOR, "fleet", "", "there is no command 'fleet'"),
    ],
)
def test_the_command_reports_unknown_arguments(
    program: tuple[Callable[[list[str]], int], str],
    typed: str,
    asked: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    main, name = program
    with pytest.raises(SystemExit) as ended:
        main(typed.split())
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (USAGE, "", 1)
    assert err.startswith(f"{name}{asked}: ")
    assert message in err
    assert err.endswith(f"; see {name}{asked} --help.\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "", id="empty"),
        pytest.param("a: 1\nb: 2\n", "", id="none"),
        pytest.param("a: 1\n'a': 2\n", "a is given twice, in lines 1 and 2; keep one of them",
                     id="quoted is the same"),
        pytest.param("{a: 1, a: 2}", "a is given twice, in line 1; keep one of them", id="flow"),
        pytest.param("b:\n  c: 1\n  d: 1\n  c: 2\n",
                     "b.c is given twice, in lines 2 and 4; keep one of them", id="deeper"),
        pytest.param("l:\n- {x: 1}\n- x: 1\n  y: 1\n  x: 2\n",
                     "l[1].x is given twice, in lines 3 and 5; keep one of them", id="in a list"),
        pytest.param("a: {k: 1}\nb: {k: 1}\n", "", id="in two mappings"),
        pytest.param("1: a\n'1': b\n", "", id="a number and a text"),
        pytest.param("x: &x {k: *x}\n", "", id="an alias of itself ends"),
        pytest.param("? [a]\n: 1\n? [a]\n: 2\n", "", id="keys that are no text"),
    ],
)  # fmt: skip
def test_the_first_is_named_with_its_lines(text: str, expected: str) -> None:
    assert duplicate_key(yaml.compose(text)) == expected


def test_aliases_of_aliases_cost_nothing() -> None:
    lines = ["a0: &a0 {k: 1}"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    assert duplicate_key(yaml.compose("\n".join(lines))) == ""
