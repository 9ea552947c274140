"""All commands of `kubectl gpuward`, in the order of its help: to look, to steer, to operate."""

from __future__ import annotations

from remediator.kubectl import command_options as more
from remediator.kubectl.command import PLANNER
from remediator.kubectl.options import LOOKS, Command

_DATA = ("json", "yaml")


COMMANDS = (
    Command(
        name="fleet",
        brief="totals, and every GPU node that is not well",
        about="How many GPU nodes are healthy, degraded, unhealthy or unknown, and which are not\n"
        "well or out of service, the gravest first.",
        run="fleet_look.fleet",
        selects=True,
        watches=True,
        forms=LOOKS,
        examples=(("fleet", "the state of everything"), ("fleet -o wide", "with every node")),
    ),
    Command(
        name="list",
        brief="open sessions: nodes being taken out, out, or on the way back",
        about="Open quarantine sessions by node.",
        run="look.list_sessions",
        selects=True,
        watches=True,
        forms=LOOKS,
        more=more.list_more,
        examples=(
            ("list", "what is going on now"),
            ("list --all -o wide", "history too, each with its sentence"),
            ("list -o json | jq -r '.items[].spec.nodeName'", "for a script"),
        ),
    ),
    Command(
        name="why",
        brief="why a node is as it is, what is next, what blocks it",
        about="Cause with its evidence, since when, what was done by whom, what is next, what\n"
        "blocks it, who owns each mark, and what you can do.",
        run="look.why_node",
        watches=True,
        forms=LOOKS,
        node=True,
        examples=(
            ("why gpu-7", "start here when a node is gone"),
            ("why gpu-7 -o wide", "every incident, line of evidence and step"),
        ),
    ),
    Command(
        name="show",
        brief="one session whole",
        about="One session as its object, with its timeline and the evidence it keeps.",
        run="look.show",
        forms=_DATA,
        more=more.show_more,
        examples=(("show gpu-7-0badcafe", "as YAML; list --all names the sessions"),),
    ),
    Command(
        name="history",
        brief="all sessions of one node, or all faults of one GPU",
        about="Every session of a node that is still kept, oldest first, of nodes that are gone\n"
        "too; then faults, phases, repairs, tests and people's acts in one list.\n"
        "history gpu UUID: every fault on the record of one GPU, wherever it was plugged in.",
        run="past.node_history.history",
        watches=True,
        forms=LOOKS,
        node=True,
        several=False,
        more=more.uuid_more,
        examples=(
            ("history gpu-7", "is it a repeat offender?"),
            ("history gpu GPU-0badcafe", "what happened to one GPU; the beginning is enough"),
        ),
    ),
    Command(
        name="lemons",
        brief="GPUs and nodes that fail again and again",
        about="Lemons: five faults in 28 days, or four in 90 days over at least 45 of them.\n"
        "RETURN is the chance of a fault within 7 days. Nothing is drained for it.",
        run="past.ledger_look.lemons",
        watches=True,
        forms=LOOKS,
        more=more.records_more,
        examples=(
            ("lemons", "what to send back to the vendor"),
            ("lemons --all -o wide", "every record, each with its sentence"),
        ),
    ),
    Command(
        name="stats",
        brief="fault rates, hours out, which repairs held, what people undid",
        about="Faults per 1,000 GPU-days by product, driver, rack and reason with 95 % "
        "intervals,\n"
        "time out of service, the share of repairs that held for a week, drains people undid.",
        run="past.ledger_look.statistics",
        watches=True,
        forms=LOOKS,
        examples=(("stats", "which driver or rack is worse than the others?"),),
    ),
    Command(
        name="evidence",
        brief="what a vendor asks for, as files: GPUs, readings, kernel log, incidents",
        about="Writes what the agent kept when the session took its node: text for the "
        "return form and\n"
        "JSON, its SHA-256 checked. It says what a vendor will ask for beside it. "
        "Overwrites nothing.",
        run="evidence.evidence",
        more=more.evidence_more,
        examples=(
            ("evidence gpu-7", "the newest of one node, also after the node is gone"),
            ("evidence gpu-7-0badcafe -o rma-4711", "of one session, into this folder"),
        ),
    ),
    Command(
        name="plan",
        brief="what would happen now if the policy enforced",
        about="What would be done now, node by node: the remediator's own rules on the live\n"
        "cluster, and one dry-run eviction per pod. Nothing is written.",
        run="operate.plan",
        selects=True,
        watches=True,
        role=PLANNER,
        forms=LOOKS,
        more=more.plan_more,
        examples=(
            ("plan", "before mode Enforce is turned on"),
            ("plan gpu-7 --policy new.yaml", "what another policy would do to one node"),
        ),
    ),
    Command(
        name="quarantine",
        brief="take a node out of service",
        about="Opens a session: taint and cordon, then evictions within PodDisruptionBudgets.\n"
        "Your reason is added where a session is open already. Asks first.",
        run="act.quarantine",
        writes=True,
        node=True,
        reason=True,
        asks=True,
        more=more.quarantine_more,
        examples=(
            ('quarantine gpu-7 --reason "fan noise, ticket 4711"', "drain it"),
            ('quarantine gpu-7 --level Cordon --reason "watching it"', "only no new work"),
        ),
    ),
    Command(
        name="release",
        brief="give a node back now, whatever the verdict says",
        about="Ends the open session now: our taint and cordon come off. Incidents "
        "that are still\n"
        "active open no new session for a day (release.cancelExpiry).",
        run="act.release",
        writes=True,
        node=True,
        reason=True,
        asks=True,
        examples=(('release gpu-7 --reason "tested by hand, it is fine"', "back to work"),),
    ),
    Command(
        name="repair",
        brief="let the proposed repair step of a drained node go",
        about="With repair.mode: Ask in the policy every step of the repair ladder "
        "waits for this. It\n"
        "lets exactly one go, once nothing uses a GPU on the node; the next one is proposed anew.",
        run="act.repair",
        writes=True,
        node=True,
        asks=True,
        more=more.repair_more,
        examples=(
            ("repair gpu-7", "the step that is proposed"),
            (
                "repair gpu-7 --step RestartNode",
                "another one, however often earlier sessions tried it",
            ),
        ),
    ),
    Command(
        name="repaired",
        brief="say that a part was replaced",
        about="Tells the agent that a repair was made: it closes what only a person "
        "can close, if\n"
        "what it sees now agrees. The session then ends by the verdict.",
        run="act.repaired",
        writes=True,
        node=True,
        reason=True,
        examples=(('repaired gpu-7 --reason "GPU 3 replaced, RMA 1234"', "after the visit"),),
    ),
    Command(
        name="keep",
        brief="say that a GPU on record is fine",
        about="Kept on the GPU's record: what happened before it makes no lemon of it any more.",
        run="past.ledger_look.keep",
        writes=True,
        reason=True,
        more=more.kept_more,
        examples=(('keep GPU-0badcafe --reason "passed 48 h of tests"', "not a lemon"),),
    ),
    Command(
        name="hold",
        brief="do not release this node; a drain goes on",
        about="Keeps a node out of service after its repair. Without an open session the node is\n"
        "annotated, so that a later session is not released either.",
        run="act.hold",
        writes=True,
        node=True,
        reason=True,
        examples=(('hold gpu-7 --reason "vendor looks at it on Monday"', "keep it out"),),
    ),
    Command(
        name="unhold",
        brief="take a hold back",
        about="Takes the hold off the session and the node; release follows by the verdict.",
        run="act.unhold",
        writes=True,
        node=True,
        examples=(("unhold gpu-7", "let it come back"),),
    ),
    Command(
        name="pause",
        brief="no new harm, within a second; marks stay",
        about="Stops new marks and evictions, also in the middle of a drain, within a second:\n"
        "on every node, on named nodes, or on those with some labels. Releases go on.",
        run="pause.pause",
        writes=True,
        reason=True,
        more=more.pause_more,
        examples=(
            ('pause --reason "something is odd"', "everything stops"),
            ('pause --until 2h --reason "switch upgrade" -l rack=a17', "one rack, two hours"),
            ('pause gpu-7 gpu-8 --reason "benchmark"', "two nodes"),
        ),
    ),
    Command(
        name="resume",
        brief="end pauses",
        about="Ends the named pauses, or all of them; present state is judged afresh.",
        run="pause.resume",
        writes=True,
        more=more.resume_more,
        examples=(("resume", "all of them"), ("resume pause-1a2b3c4d", "one of them")),
    ),
    Command(
        name="preflight",
        brief="is this cluster ready, and what would get in the way",
        about="Checks API version, definitions, nodes, DaemonSets that lack the "
        "toleration, other\n"
        "remediators and permissions. It only reads; exit 1 when something is missing.",
        run="operate.preflight",
        role=PLANNER,
        forms=_DATA,
        more=more.policy_option,
        examples=(("preflight", "before and after the installation"),),
    ),
    Command(
        name="bundle",
        brief="what support asks for, in one archive",
        about="Objects, Events, sessions and the logs of gpuward's pods that concern "
        "one node, in one\n"
        "archive. No Secret is read; environments, volumes and foreign annotations are left out.",
        run="bundle.bundle.bundle",
        node=True,
        several=False,
        more=more.bundle_more,
        examples=(("bundle gpu-7", "gpuward-gpu-7-TIME.tar.gz in this folder"),),
    ),
    Command(
        name="completion",
        brief="what a shell loads to complete these commands",
        about="Prints a script: bash, zsh or fish load it; kubectl itself asks one "
        "that is saved as\n"
        "kubectl_complete-gpuward on the PATH.",
        run="typed.completion.completion",
        connects=False,
        more=more.completion_more,
        examples=(("completion bash", "source <(kubectl gpuward completion bash)"),),
    ),
    Command(
        name="export",
        brief="nodes, verdicts, sessions and records as one archive",
        about="Writes what a back-test needs: nodes, pods by owner and PodDisruptionBudget, "
        "verdicts,\n"
        "sessions, records and the policy. No pod spec, no environment, no secret.\n"
        "--anonymise replaces every name by a digest, the same in each export of one cluster.",
        run="past.export.export",
        more=more.export_more,
        examples=(
            (
                "export > cluster.tar.gz",
                "then: gpuward-remediator backtest --records cluster.tar.gz",
            ),
            ("export --anonymise -f cluster.tar.gz", "to show to others"),
        ),
    ),
    Command(
        name="uninstall",
        brief="stop gpuward, take every mark and label off every node",
        about="Deletes the agents and the remediator, waits for their end, then takes "
        "marks, labels\n"
        "and conditions off every node. What people wrote stays and is listed. Can be\n"
        "repeated. Needs cluster-admin. Afterwards: kubectl delete -k YOUR-OVERLAY. Asks first.",
        run="operate.uninstall",
        writes=True,
        asks=True,
        examples=(("uninstall", "the first of two commands"),),
    ),
)
