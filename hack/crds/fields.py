"""What each published field means and how large it may grow: the text of `kubectl explain`.

Keyed by type and wire name. A field without an entry makes the generator fail, so a new field
cannot appear undocumented or unbounded. Lengths are characters, counts are items.
"""

from hack.crds.record_fields import NODE_NAME, RECORD_FIELDS, Field

PARTS = {
    "HealthStatus": "The entire health status, and all state that a restarted agent needs.",
    "QuarantineSpec": "What is asked for. People name a node and one Human cause; the "
    "rest is filled in.",
    "QuarantineStatus": "Where the session stands, what was done and what blocks it.",
    "RecordStatus": "What happened, what was done about it, and how likely it comes back.",
    "EvidenceSpec": "What the agent knew when a session took its node; written once.",
    "PauseSpec": "Which nodes get no new disruption, why, and until when.",
}
"""Descriptions of spec and status for `kubectl explain`."""

SEVERITIES = ("Info", "Degraded", "Fatal")

FIELDS: dict[str, Field] = {
    **RECORD_FIELDS,
    "HealthStatus.publisher": Field(
        "Who publishes this health status, and how its liveness is known."
    ),
    "PublisherPod.pod": Field("namespace/name of the agent's pod.", 512),
    "PublisherPod.podUID": Field("UID of that pod.", 64),
    "PublisherPod.heartbeat": Field(
        "Time of the last sign of life of an agent that runs without a pod; it is renewed every "
        "5 minutes and counts as alive for 12.",
        40,
    ),
    "HealthStatus.nodeUID": Field("UID of the Node this health status was made for.", 64),
    "HealthStatus.bootID": Field("Boot of the node this health status was made in.", 64),
    "HealthStatus.observedAt": Field(
        "Time of the newest observation behind this health status.", 40
    ),
    "HealthStatus.silentSince": Field(
        "Since when the agent behind this health status is silent, as the remediator found; its "
        "next health status takes it away.",
        40,
    ),
    "HealthStatus.agentVersion": Field("Version of the agent.", 64),
    "HealthStatus.rulesVersion": Field("Version of the rules and catalogs that judged.", 64),
    "HealthStatus.driverVersion": Field("NVIDIA driver version as the driver reports it.", 64),
    "HealthStatus.virtualization": Field("none, passthrough or vgpu.", 32),
    "HealthStatus.cursor": Field("How far the kernel log has been judged."),
    "Cursor.bootID": Field("Boot the sequence number belongs to.", 64),
    "Cursor.kmsgSeq": Field("Sequence number of the last judged kernel record."),
    "HealthStatus.health": Field(
        "Unhealthy while a Fatal incident is active; Unknown while the GPUs cannot be seen; "
        "Degraded while a Degraded incident is active; Healthy otherwise.",
        enum=("Healthy", "Degraded", "Unhealthy", "Unknown"),
    ),
    "HealthStatus.reason": Field("Stable CamelCase code of the most severe finding.", 63),
    "HealthStatus.message": Field("One sentence for people.", 1024),
    "HealthStatus.gpusHealthy": Field(
        "Usable GPUs (healthy or degraded) of expected GPUs, as in 7/8.", 16
    ),
    "HealthStatus.expectedGPUs": Field("How many GPUs this node should have."),
    "ExpectedGpus.count": Field("Number of GPUs."),
    "ExpectedGpus.source": Field("Where the number comes from: Config, Annotation, Learned.", 32),
    "HealthStatus.sources": Field("The collectors of the agent and whether each one works."),
    "SourceStatus.name": Field("Name of the collector.", 64),
    "SourceStatus.state": Field("Up, Down, Absent (not on this node) or Released.", 32),
    "SourceStatus.reason": Field("Why it is not Up.", 128),
    "SourceStatus.since": Field("Since when it is in this state.", 40),
    "HealthStatus.seenRunning": Field(
        "Services of the driver and network ports that worked earlier in this boot.", 64, 80
    ),
    "HealthStatus.gpus": Field("The GPUs of this node.", max_items=64),
    "GpuStatus.uuid": Field("GPU UUID as NVML reports it.", 96),
    "GpuStatus.index": Field("NVML index, -1 when unknown."),
    "GpuStatus.pci": Field("PCI address, lower case, dddd:bb:dd.f.", 16),
    "GpuStatus.serial": Field("Board serial number where there is one.", 64),
    "GpuStatus.product": Field("Product name.", 96),
    "GpuStatus.board": Field("Board part number.", 64),
    "GpuStatus.vbios": Field("VBIOS version.", 64),
    "GpuStatus.moduleId": Field("Position on the baseboard where there is one."),
    "GpuStatus.health": Field("Healthy, Degraded, Unhealthy or Unknown.", 32),
    "GpuStatus.reason": Field("Stable CamelCase code of this GPU's most severe finding.", 63),
    "GpuStatus.recoveryAction": Field("What the driver asks for, as last reported.", 64),
    "GpuStatus.resetAt": Field("When evidence of a reset of it was seen last; whole seconds.", 40),
    "GpuStatus.resetPending": Field("True when a remap waits for the next reset."),
    "GpuStatus.migMode": Field("MIG mode: Enabled, Disabled, or empty.", 32),
    "GpuStatus.readings": Field(
        "The last readings of this GPU while it has an active incident; for at most 16 GPUs. They "
        "are renewed with other changes and every 5 minutes."
    ),
    "GpuReadings.readAt": Field(
        "When the GPU last answered. The power limit, ECC and remapping counters may be a minute "
        "older.",
        40,
    ),
    "GpuReadings.temperatureCelsius": Field("Temperature of the GPU core."),
    "GpuReadings.memoryTemperatureCelsius": Field("Temperature of the hottest memory stack."),
    "GpuReadings.powerWatts": Field("Power drawn by the board."),
    "GpuReadings.powerLimitWatts": Field("Power limit in force."),
    "GpuReadings.clockEventReasons": Field("Why clocks are reduced, as NVML reports it.", 64),
    "GpuReadings.eccCorrectable": Field("Correctable ECC errors since the driver was loaded."),
    "GpuReadings.eccUncorrectable": Field("Uncorrectable ECC errors since the driver was loaded."),
    "GpuReadings.remappedRowsCorrectable": Field("Memory rows remapped for correctable errors."),
    "GpuReadings.remappedRowsUncorrectable": Field(
        "Memory rows remapped for uncorrectable errors."
    ),
    "GpuReadings.remapPending": Field("True when a remap waits for the next reset."),
    "GpuReadings.remapFailure": Field("True when a remap failed because no spare row is left."),
    "HealthStatus.topology": Field("The design topology; it does not change when a link fails."),
    "Topology.interconnect": Field("nvswitch, nvlink-mesh, nvlink-partial, pcie or single.", 32),
    "Topology.nvlinkDomain": Field("Cluster UUID and clique of the NVLink domain.", 128),
    "Topology.links": Field("Link matrix as nvidia-smi topo -m spells it.", 4096),
    "Topology.numa": Field("GPUs per NUMA node that has CPUs, as in 4-4.", 64),
    "HealthStatus.incidents": Field(
        "Active incidents first, then the recently closed ones.", max_items=64
    ),
    "IncidentStatus.id": Field("Stable identity of the incident; it survives agent restarts.", 64),
    "IncidentStatus.reason": Field("Stable CamelCase code.", 63),
    "IncidentStatus.class": Field("How evidence for this reason becomes a finding.", 32),
    "IncidentStatus.severity": Field("Info, Degraded or Fatal: how urgent it is.", 32),
    "IncidentStatus.level": Field(
        "Report, Cordon or Drain: what is done about it by default.", 32
    ),
    "IncidentStatus.recommendedAction": Field("What repairs it.", 64),
    "IncidentStatus.scope": Field("GPU, Node or Domain.", 32),
    "IncidentStatus.gpus": Field("UUIDs of the GPUs concerned.", 96, 64),
    "IncidentStatus.pci": Field("PCI addresses concerned.", 16, 64),
    "IncidentStatus.mig": Field("MIG instances named by the driver."),
    "MigInstance.gi": Field("GPU instance."),
    "MigInstance.ci": Field("Compute instance."),
    "IncidentStatus.links": Field("NVLink numbers concerned.", max_items=64),
    "IncidentStatus.ports": Field("Network ports concerned.", 64, 64),
    "IncidentStatus.xids": Field("Xids of this incident, in order of first sight.", max_items=32),
    "IncidentStatus.sources": Field("Collectors that saw it.", 64),
    "IncidentStatus.nvidia": Field("NVIDIA's own recommendations for the Xid."),
    "NvidiaAction.immediate": Field("Immediate action code.", 64),
    "NvidiaAction.investigatory": Field("Investigatory action code.", 64),
    "IncidentStatus.active": Field("True until evidence closes it."),
    "IncidentStatus.firstSeen": Field("First sight, with microseconds.", 40),
    "IncidentStatus.lastSeen": Field("Latest sight.", 40),
    "IncidentStatus.count": Field("How often it was seen."),
    "IncidentStatus.heldSince": Field(
        "Since when the state is good again of an incident that is kept open: it ended too often.",
        40,
    ),
    "IncidentStatus.mendedBy": Field(
        "Reboot or Reset: what may have ended it, until a check at the present has confirmed it.",
        32,
    ),
    "IncidentStatus.interruptedBy": Field(
        "AgentRestart: a restart of the agent cut this burst, which is judged once GPUs are seen.",
        32,
    ),
    "IncidentStatus.driverAnswer": Field(
        "None where the driver, asked twice, saw no need for a recovery action.", 32
    ),
    "IncidentStatus.leastAction": Field(
        "The lightest repair still worth trying, where lighter ones of this reason did not last.",
        64,
    ),
    "IncidentStatus.closesOn": Field("Which evidence closes it.", 96),
    "IncidentStatus.closedAt": Field("When it was closed.", 40),
    "IncidentStatus.closedBy": Field("Which evidence closed it.", 128),
    "IncidentStatus.evidence": Field("Verbatim lines or readings.", 1024, 5),
    "HealthStatus.ledger": Field(
        "What happened to the GPUs and how often lately: rules over an hour, a day or a week read "
        "it.",
        max_items=64,
    ),
    "LedgerEntry.gpu": Field("UUID of the GPU, else its PCI address, or node.", 96),
    "LedgerEntry.what": Field("What happened.", 96),
    "LedgerEntry.lastSeen": Field("When it happened last.", 40),
    "LedgerEntry.seen": Field(
        "How often it happened from each time on, as in 2026-01-31T12:00:00Z x3.", 64, 6
    ),
    "HealthStatus.dropped": Field("Closed incidents left out to keep the object small."),
    "HealthStatus.holders": Field(
        "Which pods hold which GPUs, by the PodResources API of the kubelet; only while an active "
        "incident has level Cordon or Drain."
    ),
    "Holders.readAt": Field("When the kubelet last reported this list.", 40),
    "Holders.complete": Field(
        "False when other pods may hold GPUs: the kubelet did not answer, a device could not be "
        "resolved to a GPU, or the list is cut."
    ),
    "Holders.reason": Field("Why the list is not complete.", 63),
    "Holders.pods": Field("The pods, holders of faulty GPUs first.", max_items=128),
    "Holder.namespace": Field("Namespace of the pod.", 63),
    "Holder.pod": Field(
        "Name of the pod. The kubelet reports no UID: a pod of this name that started later than "
        "readAt is another one.",
        253,
    ),
    "Holder.gpus": Field(
        "UUIDs of its GPUs from a device plugin; for a MIG device that of its GPU.", 96, 64
    ),
    "Holder.devices": Field("Its devices from Dynamic Resource Allocation.", max_items=64),
    "HeldDevice.driver": Field("Name of the DRA driver.", 253),
    "HeldDevice.pool": Field("Pool of the device.", 253),
    "HeldDevice.device": Field("Name of the device in its ResourceSlice.", 128),
    "HeldDevice.claim": Field("ResourceClaim, in the namespace of the pod.", 253),
    "QuarantineSpec.nodeName": Field(
        "The node; it cannot be changed.", 253, immutable=True, pattern=NODE_NAME
    ),
    "QuarantineSpec.nodeUID": Field("UID of that node; filled in by the remediator.", 64),
    "QuarantineSpec.bootID": Field("Boot at open; filled in by the remediator.", 64),
    "QuarantineSpec.causes": Field(
        "Why the node is out of service. The session ends with the last open cause.", max_items=64
    ),
    "Cause.source": Field(
        "Detector (an agent's health status), External (others, by the policy), Human, or "
        "Validation (a failed test under load).",
        enum=("Detector", "External", "Human", "Validation"),
        default="Human",
    ),
    "Cause.incident": Field("Id of the incident, for a detector's cause.", 64),
    "Cause.reason": Field("Stable CamelCase code.", 63),
    "Cause.severity": Field(
        "Degraded or Fatal: which drain timeout applies.", enum=SEVERITIES, default="Degraded"
    ),
    "Cause.message": Field("One sentence.", 1024),
    "Cause.by": Field("Who asked.", 256),
    "Cause.at": Field(
        "When an operator requested it, or when it joined the session; empty for the first cause.",
        40,
    ),
    "QuarantineSpec.level": Field(
        "Cordon stops new work only; Drain evicts as well.",
        enum=("Cordon", "Drain"),
        default="Drain",
    ),
    "QuarantineSpec.hold": Field(
        "Do not release, even when the node is healthy. A drain continues.", default=False
    ),
    "QuarantineSpec.release": Field("An operator asks for release now."),
    "ReleaseRequest.by": Field("Who asked.", 256),
    "ReleaseRequest.reason": Field("Why.", 1024),
    "ReleaseRequest.at": Field("When it was requested.", 40),
    "QuarantineSpec.repair": Field("An operator lets one step of the repair ladder go."),
    "RepairRequest.step": Field(
        "The step: the one proposed, or another that has an adapter.",
        32,
        pattern="^[A-Za-z0-9]*$",
    ),
    "RepairRequest.by": Field("Who asked.", 256),
    "RepairRequest.reason": Field("Why.", 1024),
    "RepairRequest.at": Field("When it was approved: it holds for the faults of that time.", 40),
    "QuarantineStatus.mode": Field("Enforce or Shadow.", 16),
    "QuarantineStatus.phase": Field("Where the session stands.", 32),
    "QuarantineStatus.phaseSince": Field("Since when it is in this phase.", 40),
    "QuarantineStatus.bootID": Field("The boot being validated.", 64),
    "QuarantineStatus.reason": Field(
        "Stable CamelCase code of the most severe cause, or who asked where it has none.", 63
    ),
    "QuarantineStatus.message": Field(
        "One sentence: what was done, what is next, what blocks it.", 1024
    ),
    "QuarantineStatus.conditions": Field(
        "Blocked, Paused, NeedsHuman, NodeUnreachable, Storm, Replace, RepairProposed."
    ),
    "Condition.type": Field("Name of the condition.", 63),
    "Condition.status": Field("True, False or Unknown.", 16),
    "Condition.reason": Field("Stable CamelCase code.", 63),
    "Condition.message": Field("One sentence.", 1024),
    "Condition.lastTransitionTime": Field("When status last changed.", 40),
    "QuarantineStatus.drain": Field("Progress of the drain."),
    "DrainStatus.evicted": Field("Pods evicted so far."),
    "DrainStatus.recent": Field("The first pods evicted, at most 20.", 512, 20),
    "DrainStatus.waiting": Field("Pods that are being waited for."),
    "Pods.named": Field("At most 20 of them.", max_items=20),
    "Pods.more": Field("How many more there are."),
    "PodNote.name": Field("namespace/name of a pod, or `volume NAME`.", 512),
    "PodNote.why": Field("Why it is on the node.", 512),
    "DrainStatus.blocked": Field("What keeps pods on the node.", max_items=20),
    "BlockedBy.pdb": Field("namespace/name of the PodDisruptionBudget.", 512),
    "BlockedBy.pods": Field("The pods."),
    "BlockedBy.owner": Field("Who owns those pods.", 512),
    "BlockedBy.why": Field("What blocks.", 1024),
    "BlockedBy.permanent": Field("True when waiting alone cannot help."),
    "BlockedBy.remedy": Field("What an operator can do.", 1024),
    "DrainStatus.leftByPolicy": Field("Pods left running on purpose."),
    "DrainStatus.leftByFailure": Field("Pods that could not be moved."),
    "DrainStatus.forceRefused": Field(
        "Why the API server refused to delete pods past the drain's time.", 63
    ),
    "DrainStatus.startedAt": Field("When the drain began.", 40),
    "DrainStatus.suspendedSeconds": Field("Time that does not count: API away or paused."),
    "QuarantineStatus.devices": Field(
        "The devices that are isolated instead of the node, each on record before its "
        "DeviceTaintRule is created.",
        max_items=64,
    ),
    "IsolatedDevice.uuid": Field("UUID of the GPU that the device is or belongs to.", 96),
    "IsolatedDevice.driver": Field("The DRA driver.", 63),
    "IsolatedDevice.pool": Field("The pool of its ResourceSlice.", 253),
    "IsolatedDevice.device": Field("Its name in the ResourceSlice.", 63),
    "IsolatedDevice.rule": Field("Name of its DeviceTaintRule.", 63),
    "IsolatedDevice.ruleUID": Field("UID of that rule; empty until it was created.", 64),
    "IsolatedDevice.taints": Field(
        "Taints of the DRA driver on the device, as key=value:effect.", 256, 8
    ),
    "QuarantineStatus.repair": Field(
        "Every repair step of the session, on record before anybody was asked for it.",
        max_items=16,
    ),
    "RepairAttempt.step": Field(
        "ResetGPU, RestartDriver, RestartNode, PowerCycle or ReplaceNode.", 32
    ),
    "RepairAttempt.adapter": Field("Who was asked for it.", 63),
    "RepairAttempt.attempt": Field("The how-manieth time on this node within repair.window."),
    "RepairAttempt.startedAt": Field("Since when the step runs.", 40),
    "RepairAttempt.askedAt": Field("When it was asked for; empty where nobody was asked.", 40),
    "RepairAttempt.endedAt": Field("When it was proven, failed or given up.", 40),
    "RepairAttempt.object": Field("What the request is called wherever it stands.", 253),
    "RepairAttempt.target": Field("The object that is asked through, where there is one."),
    "RepairTarget.apiVersion": Field("Group and version.", 128),
    "RepairTarget.resource": Field("The kind's name in URLs.", 63),
    "RepairTarget.namespace": Field("Namespace; empty where it has none.", 63),
    "RepairTarget.name": Field("Name.", 253),
    "RepairTarget.uid": Field("UID; empty for an object that the step creates.", 64),
    "RepairAttempt.before": Field("The node before the step; its proof compares with this."),
    "RepairBefore.bootID": Field("Boot of the node.", 64),
    "RepairBefore.nodeUID": Field("UID of the Node.", 64),
    "RepairBefore.gpus": Field("The GPUs, those that a cause names first.", max_items=32),
    "RepairGpu.uuid": Field("GPU UUID.", 96),
    "RepairGpu.serial": Field("Board serial number where there is one.", 64),
    "RepairGpu.accused": Field("True when a cause names it."),
    "RepairBefore.resetPending": Field("True when the driver asked for a reset."),
    "RepairAttempt.action": Field(
        "What the adapter did for the step when it was decided, as in the policy file; the "
        "request is undone by it, even if the policy has changed."
    ),
    "RepairAttempt.cleared": Field(
        "Labels of the Node by which others were moved off its GPUs, each with its value of "
        "before as label=value; they come back.",
        400,
        max_items=16,
    ),
    "RepairAttempt.state": Field(
        "Planned, Held, Asked, Proven, Failed or Withdrawn. Proven by gpuward's own "
        "checks, never by the repair tool's status.",
        16,
    ),
    "RepairAttempt.proof": Field("What was seen, or what is missing.", 512),
    "QuarantineStatus.validation": Field(
        "The tests under load before a release, each on record before its Job was made.",
        max_items=16,
    ),
    "ValidationAttempt.object": Field("What its Job is called.", 63),
    "ValidationAttempt.attempt": Field("The how-manieth test of the session."),
    "ValidationAttempt.provider": Field("Job: made from the PodTemplate.", 32),
    "ValidationAttempt.template": Field("The PodTemplate that its Job was made from.", 253),
    "ValidationAttempt.startedAt": Field("Since when it runs.", 40),
    "ValidationAttempt.endedAt": Field("When its result was read, or when it was given up.", 40),
    "ValidationAttempt.bootID": Field("The boot it tests.", 64),
    "ValidationAttempt.jobUID": Field("UID of its Job: no other Job of that name counts.", 64),
    "ValidationAttempt.state": Field(
        "Planned, Asked, Passed, Failed, Unknown, Outdated or Withdrawn. Only Passed gives a node "
        "back.",
        16,
    ),
    "ValidationAttempt.verdict": Field("pass, degraded, fail or unknown.", 16),
    "ValidationAttempt.message": Field("One sentence: what was found, or why nothing was.", 512),
    "ValidationAttempt.checks": Field("What was measured, the most severe first.", max_items=8),
    "ValidationCheck.id": Field("What was measured.", 64),
    "ValidationCheck.gpu": Field("UUID of the GPU; empty for the node.", 96),
    "ValidationCheck.verdict": Field("pass, degraded, fail or unknown.", 16),
    "ValidationCheck.value": Field("What was found."),
    "ValidationCheck.unit": Field("In which unit.", 32),
    "ValidationCheck.floor": Field("At least this."),
    "ValidationCheck.note": Field("More about it.", 256),
    "QuarantineStatus.timeline": Field("What happened, in order.", max_items=100),
    "TimelineEntry.at": Field("When.", 40),
    "TimelineEntry.step": Field("What.", 64),
    "TimelineEntry.subject": Field("The repair step or the pod that it is about.", 512),
    "TimelineEntry.message": Field("One sentence.", 1024),
    "TimelineEntry.by": Field("Who.", 256),
    "QuarantineStatus.evidence": Field(
        "Copied from GPUNodeHealth when the session opened, as it must survive the node; and "
        "which GPU was replaced by which since."
    ),
    "EvidenceSpec.session": Field("The GPUQuarantine that it belongs to.", 253),
    "EvidenceSpec.nodeName": Field("The node it was taken on.", 253),
    "EvidenceSpec.nodeUID": Field("UID of that Node.", 64),
    "EvidenceSpec.bootID": Field("Boot it was taken in.", 64),
    "EvidenceSpec.takenAt": Field("When it was taken.", 40),
    "EvidenceSpec.agentVersion": Field("Version of the agent.", 64),
    "EvidenceSpec.rulesVersion": Field("Version of the rules and catalogs that judged.", 64),
    "EvidenceSpec.driverVersion": Field("NVIDIA driver version as the driver reports it.", 64),
    "EvidenceSpec.virtualization": Field("none, passthrough or vgpu.", 32),
    "EvidenceSpec.sources": Field("The collectors, and whether each worked."),
    "EvidenceSpec.gpus": Field("The GPUs, those accused first.", max_items=64),
    "EvidenceSpec.topology": Field("How the GPUs are joined by design."),
    "EvidenceSpec.incidents": Field("The incidents as published.", max_items=64),
    "EvidenceSpec.kernelLog": Field(
        "Lines of the kernel log about the driver, the GPUs and the bus, with their times; what "
        "is not printable is escaped.",
        262144,
    ),
    "EvidenceSpec.kernelLinesDropped": Field(
        "Lines between the first and the last ones that had no room."
    ),
    "EvidenceSpec.missing": Field("What could not be had, and why."),
    "EvidenceSpec.sha256": Field(
        "SHA-256 over the other fields as JSON with sorted keys and no spaces.", 64, immutable=True
    ),
    "EvidenceGpu.uuid": Field("UUID.", 96),
    "EvidenceGpu.index": Field("Number in the driver's order."),
    "EvidenceGpu.pci": Field("PCI address: its slot.", 16),
    "EvidenceGpu.above": Field(
        "PCI addresses of the bridges above it, the root port first.", 16, 8
    ),
    "EvidenceGpu.moduleId": Field("Position on the baseboard, as the driver numbers it.", 16),
    "EvidenceGpu.serial": Field("Serial number.", 64),
    "EvidenceGpu.product": Field("Product name.", 96),
    "EvidenceGpu.board": Field("Board part number.", 64),
    "EvidenceGpu.vbios": Field("VBIOS version.", 64),
    "EvidenceGpu.inforom": Field("InfoROM image version.", 64),
    "EvidenceGpu.readAt": Field("When it was last polled.", 40),
    "EvidenceGpu.recoveryAction": Field("The driver's recommended action.", 64),
    "EvidenceGpu.links": Field(
        "How it is joined to each GPU, and what is at the end of each link.", 160, 128
    ),
    "EvidenceGpu.readings": Field("The last value of every reading.", max_items=192),
    "EvidenceReading.signal": Field("Name of the reading.", 64),
    "EvidenceReading.value": Field("Its value as text.", 256),
    "PauseSpec.scope": Field("Which nodes are paused."),
    "PauseScope.all": Field("Every node.", default=False),
    "PauseScope.nodeSelector": Field("Nodes this label selector matches."),
    "PauseScope.nodes": Field("Nodes by name.", 253, 5000, pattern=NODE_NAME),
    "PauseSpec.reason": Field("Why.", 1024),
    "PauseSpec.by": Field("Who asked.", 256),
    "PauseSpec.until": Field("When the pause ends, or has ended; empty means never.", 40),
    "PauseSpec.ended": Field(
        "Who ended it before its time: for the record, it is over by `until` alone."
    ),
    "PauseEnded.by": Field("Who ended it.", 256),
    "PauseEnded.until": Field("When it would have ended by itself; empty means never.", 40),
}
