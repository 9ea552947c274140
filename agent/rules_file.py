"""Reads the file that `--rules` names; shared by `run` and `check`."""

from pathlib import Path

from agent.settings import SettingsError
from rules.thresholds import DEFAULT_RULES, Rules, parse_rules


def load_rules(path: str) -> Rules:
    """The rules in force. Raises SettingsError for an unreadable file, RulesError for a bad one."""
    if not path:
        return DEFAULT_RULES
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(
            f"--rules {path} cannot be read ({error.strerror}): name a readable file"
        ) from error
    return parse_rules(text)
