"""Who owns each mark on a node, and what people wrote on it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from remediator.kubectl.node_look import NodeLook
from remediator.kubectl.why.repaired import disagreement
from remediator.view.people import pause_lines
from rules.api import names
from rules.api.mark import cordon_stays, marked, own_taint, read_note
from rules.api.nodes import FreshNode, QuarantineView
from rules.api.said_gpus import MAX_GPUS, said_count
from rules.api.sentences import some
from rules.api.timestamps import parse_time, utc_of
from rules.catalog.why_not import WhyNot
from rules.session.halts import opt_out_unheard
from rules.session.observation import opted_out
from rules.session.status import blocked_by

_CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"
"""Kubernetes puts it beside every cordon; the cordon has its own line."""
_BY_PEOPLE: Final = {
    names.ANNOTATION_HOLD: "held",
    names.ANNOTATION_REPAIRED: "repaired",
    names.ANNOTATION_EXPECTED_GPUS: "expected GPUs",
    names.ANNOTATION_RELEASE_GPU: "the agent lets go of the driver",
}


def mark_lines(look: NodeLook, session: QuarantineView | None) -> Iterator[str]:
    """Taints and cordon with their owners, and what will stay."""
    node = look.node
    if node is None:
        return
    note = read_note(node)
    for taint in node.spec.taints:
        if taint.key == _CORDON_TAINT:
            continue
        value = f"={taint.value}" if taint.value else ""
        owner = "gpuward's" if taint.key == names.TAINT_QUARANTINE else "not gpuward's"
        yield f"taint {taint.key}{value}:{taint.effect}, {owner}"
    if node.spec.unschedulable:
        yield f"cordon, {_cordon_owner(node)}"
    if note is not None and (session is None or note.session != session.name):
        yield f"they are of session {note.session}, which is not open: the remediator removes them"
    # The session's sentence names them where it has just put the mark on.
    told = session.status.message if session is not None else ""
    if look.untolerating and some(look.untolerating) not in told:
        yield (
            f"could not come back for lack of a toleration: {some(look.untolerating)} (DaemonSets)"
        )


def _cordon_owner(node: FreshNode) -> str:
    note = read_note(node)
    if note is not None and note.prior_unschedulable:
        return f"not gpuward's: {cordon_stays(node)}, and it stays after a release"
    if note is not None and "Cordon" in note.mark:
        stays = cordon_stays(node)
        return f"gpuward's; it stays after a release: {stays}" if stays else "gpuward's"
    managers = [
        entry
        for entry in node.metadata.managed_fields
        if isinstance(entry.fields_v1.get("f:spec"), dict)
        and "f:unschedulable" in entry.fields_v1["f:spec"]
    ]
    if not managers:
        return "not gpuward's"
    last = max(managers, key=lambda entry: entry.time)
    return f"not gpuward's: set by {last.manager[:100]} at {utc_of(last.time) or '?'}"


def what_comes_off(name: str, node: FreshNode | None) -> str:
    """What comes off the node when its session ends now, and what stays: sentences."""
    if node is None:
        return f"This gives {name} back now: taint and cordon come off."
    if not marked(node):
        return f"This ends the session of {name}, whose node carries no mark so far."
    if stays := cordon_stays(node):
        return (
            f"This gives {name} back now: our taint comes off, the cordon stays ({stays}); "
            f"kubectl uncordon {name} ends it."
        )
    parts = [
        *(["taint"] if own_taint(node) is not None else []),
        *(["cordon"] if node.spec.unschedulable else []),
    ]
    come = "come" if len(parts) > 1 else "comes"
    return f"This gives {name} back now: {' and '.join(parts) or 'the mark'} {come} off."


def _at_a_readable_time(value: str) -> str:
    """The note of `repaired` begins with its moment as objects write it: said as everywhere."""
    first, _, rest = value.partition(" ")
    at = utc_of(first) if parse_time(first) is not None else ""
    return f"{at} {rest}".rstrip() if at else value


def kept_lines(look: NodeLook) -> Iterator[str]:
    """Hold, opt-out, pauses and the other words of people."""
    node = look.node
    if node is not None:
        # A session that waits for it quotes what the person wrote.
        quoted = look.session is not None and blocked_by(look.session.status) == WhyNot.HOLD
        for key, words in _BY_PEOPLE.items():
            value = node.annotations.get(key)
            if value is not None and not (key == names.ANNOTATION_HOLD and quoted):
                yield f"{words}: {_at_a_readable_time(value)}{_unheard(key, value)}"
        yield from disagreement(look)
        if opted_out(node):
            yield "opted out: watched and reported, never touched"
        if unheard := opt_out_unheard(node):
            yield unheard
    yield from pause_lines(look.pauses, look.now)


def _unheard(key: str, value: str) -> str:
    """Of a number of GPUs that no agent takes."""
    if key != names.ANNOTATION_EXPECTED_GPUS or said_count(value) is not None:
        return ""
    return f" (no number from 0 to {MAX_GPUS}, so it is not heard)"
