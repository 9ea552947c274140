"""Wrong words are told by the command they were said to, in both programs alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.cli import main as agent
from remediator.cli import main as remediator

USAGE = 64
AGENT, REMEDIATOR = (agent, "gpuward-agent"), (remediator, "gpuward-remediator")


@pytest.mark.parametrize(
    ("program", "typed", "asked", "said"),
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
def test_the_command_says_what_it_does_not_take(
    program: tuple[Callable[[list[str]], int], str],
    typed: str,
    asked: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    main, name = program
    with pytest.raises(SystemExit) as ended:
        main(typed.split())
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (USAGE, "", 1)
    assert err.startswith(f"{name}{asked}: ")
    assert said in err
    assert err.endswith(f"; see {name}{asked} --help.\n")
