"""Text of other programs appears in a command only if a shell reads it as one argument."""

import shlex
import string

import pytest

from rules.text.printable import is_pasteable


@pytest.mark.parametrize(
    "text",
    ["Xid79GPUFallenOffBus", "0000:9d:00.0", "GPU-0badcafe-1111", "MIG-GPU-0badcafe/1/0", "gpu-7"],
)
def test_reasons_addresses_and_uuids_are_pasteable(text: str) -> None:
    assert is_pasteable(text)


@pytest.mark.parametrize("char", sorted(set(string.printable) - set(string.ascii_letters)))
def test_text_with_shell_syntax_is_not_pasteable(char: str) -> None:
    text = f"a{char}b"
    assert not is_pasteable(text) or shlex.quote(text) == text


@pytest.mark.parametrize("text", ["", "-f", "--yes", "..", "a" * 300, "größe", "a\u2028b"])
def test_no_flag_no_folder_above_and_nothing_endless(text: str) -> None:
    assert not is_pasteable(text)
