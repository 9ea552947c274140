"""The kubectl commands printed in docs, runbooks, alerts, and by `why`."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
_FENCE = re.compile(r"^ *```[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(kubectl [^`]*)`")
_IN_TEXT = re.compile(r"\bkubectl (?=[a-z-])[^\n]*")
_SHELL = {"|", ">", ">>", "2>&1", "&&", ";", "#", "<"}
_PROSE = {
    *("kubectl", "kubectl gpuward", "kubectl drain", "kubectl uncordon", "kubectl cordon"),
    *("kubectl apply", "kubectl-gpuward", "kubectl delete pod", "kubectl gpuward why"),
}
"""Named, not meant to be typed as it stands."""
PLACES = {
    "NODE": "gpu-blocked",
    "OTHER-NODE": "gpu-healthy",
    "NAMESPACE": "serving",
    "PDB": "solo",
    "POD": "solo-0",
    "SESSION": "gpu-blocked-0badcafe",
    "YOUR-OVERLAY": "daemonset",
    "$labels.node": "gpu-blocked",
}
"""What a reader puts where a page has capitals; of the agent's page its own pod."""


@dataclass(frozen=True, slots=True)
class Printed:
    """One command, and where it stands."""

    where: str
    arguments: tuple[str, ...]

    @property
    def text(self) -> str:
        return shlex.join(self.arguments)


def printed_commands() -> list[Printed]:
    """Every command once, with the first place it stands in."""
    found: dict[tuple[str, ...], Printed] = {}
    for path, text in _texts():
        for line in text:
            arguments = _arguments(line)
            if arguments and not arguments[1].endswith(":") and " ".join(arguments) not in _PROSE:
                found.setdefault(arguments, Printed(str(path.relative_to(REPOSITORY)), arguments))
    return list(found.values())


def _texts() -> Iterator[tuple[Path, list[str]]]:
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    for page in sorted(pages):
        if page.name not in {"CHANGELOG.md", "decisions.md"}:
            yield page, list(_of_page(page.read_text(encoding="utf-8")))
    for path in sorted((REPOSITORY / "rules" / "alerts").glob("*.yaml")):
        text = re.sub(r"\n\s+", " ", path.read_text(encoding="utf-8"))
        text = re.sub(r"\{\{ *(\S+) *\}\}", r"\1", text)
        yield path, _INLINE.findall(text)
    for path in sorted((REPOSITORY / "tests" / "golden" / "kubectl").glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        if path.name not in {"why-yaml.txt", "completion.txt"}:
            lines = [line for line in text.split("\n") if not line.startswith(("$ ", "kubectl g"))]
            yield (
                path,
                [re.split(r"   |, | \(", one)[0] for one in _IN_TEXT.findall("\n".join(lines))],
            )


def _of_page(text: str) -> Iterator[str]:
    for block in _FENCE.findall(text):
        for line in block.replace("\\\n", " ").split("\n"):
            if line.strip().startswith(("kubectl ", "$ kubectl ")):
                yield re.split(r"   ", line.strip().removeprefix("$ "))[0]
    for one in _INLINE.findall(_FENCE.sub("", text)):
        inline = re.sub(r"\s+", " ", one)
        # `kubectl exec` in a sentence is the name of something, not to be typed as it stands.
        if inline.count(" ") > 1:
            yield inline


def _arguments(line: str) -> tuple[str, ...]:
    """The command up to what the shell does with its output."""
    try:
        arguments = shlex.split(line, comments=False)
    except ValueError:
        return ()
    for at, argument in enumerate(arguments):
        if argument in _SHELL or argument.startswith("#"):
            arguments = arguments[:at]
            break
    return tuple(_filled(argument) for argument in arguments)


def _filled(argument: str) -> str:
    for name, value in PLACES.items():
        argument = re.sub(rf"(?<![A-Za-z-]){re.escape(name)}(?![A-Za-z-])", value, argument)
    return argument
