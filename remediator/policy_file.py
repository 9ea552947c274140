"""Read a policy: a file, a ConfigMap or standard input.

YAML without surprises, then the strict reader of the rules. Whatever the text is, the answer is a
policy or one sentence for every problem with it; no exception leaves.
"""

import sys
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec.structs import fields

from rules.api import messages
from rules.policy import pools
from rules.policy.policy import Policy
from rules.text import user_input

_MAX_BYTES = 1024 * 1024


def read_policy(path: Path, *, config_map: bool = False) -> Policy | list[str]:
    """The policy in the file, or one sentence for every problem with it."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        return [f"{path}: cannot be read ({error.strerror}); name a readable file"]
    if len(data) > _MAX_BYTES:
        return [f"{path}: is larger than 1 MiB; a policy is a page of YAML"]
    return decode_policy(data, str(path), config_map=config_map)


def given_policy(name: str) -> Policy | list[str]:
    """The policy that an operator names: a file, `-` for standard input, `default`; a ConfigMap
    too.
    """
    if name == "default":
        return Policy()
    if name != "-":
        return read_policy(Path(name), config_map=True)
    data = sys.stdin.buffer.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        return ["standard input: is larger than 1 MiB; a policy is a page of YAML"]
    if not data.strip():  # what came before the pipe has failed: that is no policy of defaults
        return ["standard input: is empty; give a policy, or a file by its name"]
    return decode_policy(data, "standard input", config_map=True)


POLICY_KEY: Final = "policy.yaml"
"""Where a ConfigMap holds the policy."""
_INT64: Final = 2**63
_POLICY: Final = "QuarantinePolicy"
_KEYS: Final = frozenset(f.encode_name for f in fields(Policy)) - {
    "apiVersion",
    "kind",
    "metadata",
}
_ENTIRE: Final = "kubectl kustomize DIR | gpuward-remediator policy check -"


class _Loader(yaml.SafeLoader):
    """Refuses what would be read as something else than it looks like.

    Text without UTF-8 (`"\\ud83d"` alone), numbers of YAML 1.1 in base 60 (`1:30` is 90) and in
    base 8 (`010` is 8), and integers beyond 64 bits, which no object of Kubernetes can hold.
    """

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """The text of a node; ConstructorError with its place where it is none."""
        text = super().construct_scalar(node)
        try:
            str(text).encode()
        except UnicodeEncodeError:
            problem = "found an incomplete UTF-16 surrogate pair"
            raise yaml.constructor.ConstructorError(
                problem=problem, problem_mark=node.start_mark
            ) from None
        return text


def _number(loader: _Loader, node: yaml.ScalarNode) -> int | float:
    """The number that an operator reads there; ConstructorError where YAML 1.1 reads another."""
    text = str(loader.construct_scalar(node))
    digits = text.lstrip("+-").replace("_", "")
    problem = ""
    if ":" in text:
        problem = f"found {text[:40]}, which YAML reads in base 60; quote a text"
    elif len(digits) > 1 and digits.startswith("0") and digits.isdigit():
        problem = f"found {text[:40]}, which YAML reads in base 8; leave the first zero out"
    is_int = node.tag.endswith(":int")
    number: int | float = 0
    if not problem:
        number = loader.construct_yaml_int(node) if is_int else loader.construct_yaml_float(node)
        if is_int and not -_INT64 <= number < _INT64:
            problem = "found an integer that does not fit into 64 bits"
    if problem:
        raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
    return number


for _tag in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _number)


def decode_policy(
    text: bytes | str, source: str, *, config_map: bool = False
) -> Policy | list[str]:
    """The policy, or one sentence for every problem with it; `source` names the file.

    `config_map`: the text may be a ConfigMap that holds one, as it is in a cluster or among the
    manifests that kustomize or helm print.
    """
    try:
        documents = _documents(text)
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        # What the constructors of tagged scalars raise: `!!int ""`, `!!bool foo`, `!!timestamp x`;
        # ValueError also for a value that looks like a date and is none.
        return [f"{source}: is not YAML: {_error_text(error)}"]
    except RecursionError:
        return [f"{source}: is nested too deeply; a policy is a page of YAML"]
    others = any(_kind(document) not in {"", _POLICY} for document in documents)
    if config_map and (others or (len(documents) > 1 and not any(map(_is_policy, documents)))):
        return _held(documents, source)
    return _read(documents, source)


def _read(documents: list[Any], source: str) -> Policy | list[str]:
    found = pools.load_policies(documents)
    if isinstance(found, Policy):
        return found
    return [problem.sentence(source) for problem in found]


def _documents(text: bytes | str) -> list[Any]:
    """All that are not empty; YAMLError also for a key that is given twice."""
    loader = _Loader(text)
    found = []
    try:
        while loader.check_node():
            root = loader.get_node()
            if twice := user_input.duplicate_key(root):
                raise yaml.YAMLError(twice)
            if (value := loader.construct_document(root)) is not None:
                found.append(value)
    finally:
        loader.dispose()
    return found


def _error_text(error: Exception) -> str:
    """What is wrong and where, without the parser's name for a text that it was handed."""
    if isinstance(error, yaml.MarkedYAMLError):
        place = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        where = f" (line {place.line + 1}, column {place.column + 1})" if place is not None else ""
        return f"{' '.join(what.split())[:300]}{where}"
    return " ".join(str(error).split())[:300] or type(error).__name__


def _kind(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind[:80] if isinstance(kind, str) else ""


def _held(documents: list[Any], source: str) -> Policy | list[str]:
    """The policy that one object holds, or that is among them."""
    objects = [one for each in documents for one in _listed(each) if isinstance(one, dict)]
    maps = [one for one in objects if _kind(one) == "ConfigMap"]
    held = [data.get(POLICY_KEY) for one in maps if isinstance(data := one.get("data"), dict)]
    found = [text for text in held if isinstance(text, str)]
    plain = [each for each in documents if _is_policy(each)]
    if len(found) == 1 and not plain:
        return decode_policy(found[0], f"{source}, {POLICY_KEY}")
    if plain and not found:
        return _read(plain, source)
    if several := len(found) + len(plain):
        return [f"{source}: holds {several} policies; give it one of them"]
    kinds = (
        messages.name_list(_kind(one) or "something without a kind" for one in objects)
        or "no object"
    )
    instead = f"holds no policy and no ConfigMap with {POLICY_KEY}, but {kinds}"
    then = f"name the file of the policy, or give it the entire overlay: {_ENTIRE}"
    return [f"{source}: {instead}; {then}"]


def _is_policy(value: Any) -> bool:
    """By its kind or, where that is missing or misspelled, by its keys."""
    return _kind(value) == _POLICY or (isinstance(value, dict) and bool(_KEYS & value.keys()))


def _listed(value: Any) -> list[Any]:
    """The objects of a List, as kubectl prints several; else the one."""
    items = value.get("items") if isinstance(value, dict) and value.get("kind") == "List" else None
    return items if isinstance(items, list) else [value]
