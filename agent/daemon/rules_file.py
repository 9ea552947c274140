"""Reads the file that `--rules` names; shared by `run` and `check`."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from agent.settings import SettingsError
from agent.version import VERSION
from rules.catalog.thresholds import DEFAULT_RULES, RulesError, Thresholds, parse_rules
from rules.text.yaml_keys import duplicate_keys


class LoadedRules(msgspec.Struct, frozen=True):
    """The rules in force and the version that is published with verdicts made by them."""

    rules: Thresholds
    version: str


def load_rules(path: str) -> LoadedRules:
    """The built-in rules, or with the changes of a file.

    Nodes with different files publish different versions, so that the remediator counts what
    each of them finds apart. Raises SettingsError for an unreadable file, RulesError for a bad
    one.
    """
    if not path:
        return LoadedRules(DEFAULT_RULES, VERSION)
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(
            f"--rules {path} cannot be read ({error.strerror}): name a readable file"
        ) from error
    _refuse_duplicates(text)
    return LoadedRules(parse_rules(text), f"{VERSION}+{hashlib.sha256(text).hexdigest()[:12]}")


def _refuse_duplicates(text: bytes) -> None:
    # Imported here: only who gives a file pays for the YAML parser.
    import yaml

    try:
        twice = duplicate_keys(yaml.compose(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError:
        # `parse_rules` says it better.
        return
    except RecursionError:
        raise RulesError("rules file: is nested too deeply; it is a page of YAML.") from None
    if twice:
        raise RulesError(f"rules file: {twice[0].sentence}.")
