"""Policy text to policy: YAML without surprises, then the strict reader of the rules.

For the file that the controller watches and for the ConfigMap that `kubectl gpuward` reads.
Whatever the text is, the answer is a policy or sentences; no exception leaves.
"""

from __future__ import annotations

from typing import Final

import yaml

from rules.policy.policy import Policy
from rules.policy.reader import load_policy
from rules.text.yaml_keys import duplicate_keys

POLICY_KEY: Final = "policy.yaml"
"""Where a ConfigMap holds the policy."""


def decode_policy(
    text: bytes | str, source: str, *, config_map: bool = False
) -> Policy | list[str]:
    """The policy, or one sentence for every problem with it; `source` names the file.

    `config_map`: the text may be a ConfigMap that holds one, as it is in a cluster or a manifest.
    """
    if config_map and (held := _only_policy(text)) is not None:
        return decode_policy(held, f"{source}, {POLICY_KEY}")
    try:
        loader = yaml.SafeLoader(text)
        try:
            root = loader.get_single_node()
            twice = duplicate_keys(root)
            document = None if root is None or twice else loader.construct_document(root)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        # What the constructors of tagged scalars raise: `!!int ""`, `!!bool foo`, `!!timestamp x`;
        # ValueError also for a value that looks like a date and is none.
        said = " ".join(str(error).split())[:300] or type(error).__name__
        return [f"{source}: is not YAML: {said}"]
    except RecursionError:
        return [f"{source}: is nested too deeply; a policy is a page of YAML"]
    if twice:
        return [f"{source}: {found.sentence}" for found in twice]
    if config_map and isinstance(document, dict) and document.get("kind") == "ConfigMap":
        held = document.get("data")
        inner = held.get(POLICY_KEY) if isinstance(held, dict) else None
        if not isinstance(inner, str):
            return [f"{source}: is a ConfigMap without data.{POLICY_KEY}; name the one of gpuward"]
        return decode_policy(inner, f"{source}, {POLICY_KEY}")
    found = load_policy(document)
    if isinstance(found, Policy):
        return found
    return [problem.sentence(source) for problem in found]


def _only_policy(text: bytes | str) -> str | None:
    """The one policy among several documents, such as what kustomize or helm print; None where the
    text is one document, or does not hold exactly one.
    """
    several = b"\n---" in text if isinstance(text, bytes) else "\n---" in text
    if not several:
        return None
    try:
        documents = [one for one in yaml.safe_load_all(text) if isinstance(one, dict)]
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError):
        return None
    maps = [one.get("data") for one in documents if one.get("kind") == "ConfigMap"]
    held = [data.get(POLICY_KEY) for data in maps if isinstance(data, dict)]
    found = [one for one in held if isinstance(one, str)]
    return found[0] if len(found) == 1 else None
