"""A word of somebody else may stand in a command only where a shell takes it as it is."""

import shlex
import string

import pytest

from rules.text.printable import is_pasteable


@pytest.mark.parametrize(
    "word",
    ["Xid79GPUFallenOffBus", "0000:9d:00.0", "GPU-0badcafe-1111", "MIG-GPU-0badcafe/1/0", "gpu-7"],
)
def test_what_agents_write_is_pasteable(word: str) -> None:
    assert is_pasteable(word)


@pytest.mark.parametrize("char", sorted(set(string.printable) - set(string.ascii_letters)))
def test_what_a_shell_would_take_for_more_than_a_word_is_not(char: str) -> None:
    word = f"a{char}b"
    assert not is_pasteable(word) or shlex.quote(word) == word


@pytest.mark.parametrize("word", ["", "-f", "--yes", "..", "a" * 300, "größe", "a\u2028b"])
def test_no_flag_no_folder_above_and_nothing_endless(word: str) -> None:
    assert not is_pasteable(word)
