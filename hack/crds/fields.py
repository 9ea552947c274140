"""What each published field means and how large it may grow: the text of `kubectl explain`.

Keyed by type and wire name; each field needs an entry. Lengths are characters, counts items.
"""

from hack.crds.record_fields import NODE_NAME, RECORD_FIELDS, Field

PARTS = {
    "HealthStatus": "Health status of the node, and the state that a restarted agent needs.",
    "QuarantineSpec": "What is requested. Operators set nodeName and a cause, gpuward the rest.",
    "QuarantineStatus": "Phase, actions and blockers of the session.",
    "RecordStatus": "Faults of one GPU or node, and what was done about them.",
    "EvidenceSpec": "What the agent knew when the session quarantined its node; written once.",
    "PauseSpec": "Nodes that get no new disruption, why, and until when.",
}
"""Descriptions of spec and status for `kubectl explain`."""


FIELDS: dict[str, Field] = {
    **RECORD_FIELDS,
    "HealthStatus.publisher": Field("Agent that publishes this health status."),
    "PublisherPod.pod": Field("namespace/name of the agent's pod.", 512),
    "PublisherPod.podUID": Field("UID of that pod.", 64),
    "PublisherPod.heartbeat": Field(
        "Last heartbeat of an agent without a pod: renewed every 5 minutes, valid for 12.", 40
    ),
    "HealthStatus.nodeUID": Field("UID of the Node.", 64),
    "HealthStatus.bootID": Field("Boot of the node.", 64),
    "HealthStatus.observedAt": Field("Time of the newest observation.", 40),
    "HealthStatus.silentSince": Field(
        "Since when the agent is silent; written by the remediator, removed by the agent.", 40
    ),
    "HealthStatus.agentVersion": Field("Version of the agent.", 64),
    "HealthStatus.rulesVersion": Field("Version of the rules and catalogs.", 64),
    "HealthStatus.driverVersion": Field("NVIDIA driver version.", 64),
    "HealthStatus.virtualization": Field("none, passthrough or vgpu.", 32),
    "HealthStatus.cursor": Field("Last assessed record of the kernel log."),
    "Cursor.bootID": Field("Boot of the record.", 64),
    "Cursor.kmsgSeq": Field("Its sequence number."),
    "HealthStatus.health": Field(
        "Unhealthy with an active Fatal incident; Unknown without data about the GPUs; "
        "Degraded with an active Degraded incident; else Healthy.",
        enum=("Healthy", "Degraded", "Unhealthy", "Unknown"),
    ),
    "HealthStatus.reason": Field("CamelCase code of the most severe finding.", 63),
    "HealthStatus.message": Field("One sentence.", 1024),
    "HealthStatus.gpusHealthy": Field("Usable of expected GPUs, as in 7/8.", 16),
    "HealthStatus.expectedGPUs": Field("GPUs that this node should have."),
    "ExpectedGpus.count": Field("Number."),
    "ExpectedGpus.source": Field("Source of the number: Config, Annotation or Learned.", 32),
    "HealthStatus.sources": Field("The agent's collectors."),
    "SourceStatus.name": Field("Collector.", 64),
    "SourceStatus.state": Field("Up, Down, Absent (not on this node) or Released.", 32),
    "SourceStatus.reason": Field("Why it is not Up.", 128),
    "SourceStatus.since": Field("Start of this state.", 40),
    "HealthStatus.seenRunning": Field(
        "Driver services and network ports that worked earlier in this boot.", 64, 80
    ),
    "HealthStatus.gpus": Field("The GPUs of this node.", max_items=64),
    "GpuStatus.uuid": Field("GPU UUID.", 96),
    "GpuStatus.index": Field("NVML index; -1 if unknown."),
    "GpuStatus.pci": Field("PCI address, lower case, dddd:bb:dd.f.", 16),
    "GpuStatus.serial": Field("Board serial number.", 64),
    "GpuStatus.product": Field("Product name.", 96),
    "GpuStatus.board": Field("Board part number.", 64),
    "GpuStatus.vbios": Field("VBIOS version.", 64),
    "GpuStatus.moduleId": Field("Position on the baseboard."),
    "GpuStatus.health": Field("Healthy, Degraded, Unhealthy or Unknown.", 32),
    "GpuStatus.reason": Field("CamelCase code of its most severe finding.", 63),
    "GpuStatus.recoveryAction": Field("Recovery action that the driver reports.", 64),
    "GpuStatus.resetAt": Field("Last observed reset.", 40),
    "GpuStatus.resetPending": Field("True while a remap waits for a reset."),
    "GpuStatus.migMode": Field("Enabled, Disabled or empty.", 32),
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
    "HealthStatus.topology": Field("Topology by design; independent of failed links."),
    "Topology.interconnect": Field("nvswitch, nvlink-mesh, nvlink-partial, pcie or single.", 32),
    "Topology.nvlinkDomain": Field("Cluster UUID and clique of the NVLink domain.", 128),
    "Topology.links": Field("Link matrix as in nvidia-smi topo -m.", 4096),
    "Topology.numa": Field("GPUs per NUMA node that has CPUs, as in 4-4.", 64),
    "HealthStatus.incidents": Field("Active incidents, then recently closed ones.", max_items=64),
    "IncidentStatus.id": Field("Identity of the incident; survives agent restarts.", 64),
    "IncidentStatus.reason": Field("CamelCase code.", 63),
    "IncidentStatus.class": Field("How evidence becomes a finding.", 32),
    "IncidentStatus.severity": Field("Info, Degraded or Fatal.", 32),
    "IncidentStatus.level": Field("Default response: Report, Cordon or Drain.", 32),
    "IncidentStatus.recommendedAction": Field("Recommended repair.", 64),
    "IncidentStatus.scope": Field("GPU, Node or Domain.", 32),
    "IncidentStatus.gpus": Field("UUIDs of the GPUs.", 96, 64),
    "IncidentStatus.pci": Field("PCI addresses.", 16, 64),
    "IncidentStatus.mig": Field("MIG instances in the driver's message."),
    "MigInstance.gi": Field("GPU instance."),
    "MigInstance.ci": Field("Compute instance."),
    "IncidentStatus.links": Field("NVLink numbers.", max_items=64),
    "IncidentStatus.ports": Field("Network ports.", 64, 64),
    "IncidentStatus.xids": Field("Xids, in order of first observation.", max_items=32),
    "IncidentStatus.sources": Field("Collectors that observed it.", 64),
    "IncidentStatus.nvidia": Field("NVIDIA's recommendations for the Xid."),
    "NvidiaAction.immediate": Field("Immediate action code.", 64),
    "NvidiaAction.investigatory": Field("Investigatory action code.", 64),
    "IncidentStatus.active": Field("True until evidence closes it."),
    "IncidentStatus.firstSeen": Field("First observation, with microseconds.", 40),
    "IncidentStatus.lastSeen": Field("Last observation.", 40),
    "IncidentStatus.count": Field("Number of observations."),
    "IncidentStatus.heldSince": Field(
        "Since when the state is good of a flapping incident, which stays open for an hour.", 40
    ),
    "IncidentStatus.mendedBy": Field(
        "Reboot or Reset that may have ended it; not confirmed yet.", 32
    ),
    "IncidentStatus.interruptedBy": Field(
        "AgentRestart: the burst is assessed when the GPUs are read again.", 32
    ),
    "IncidentStatus.driverAnswer": Field(
        "None if the driver, asked twice, needs no recovery action.", 32
    ),
    "IncidentStatus.leastAction": Field(
        "Lowest repair step still to try, after lower ones did not last.", 64
    ),
    "IncidentStatus.closesOn": Field("Evidence that closes it.", 96),
    "IncidentStatus.closedAt": Field("Time of closing.", 40),
    "IncidentStatus.closedBy": Field("Evidence that closed it.", 128),
    "IncidentStatus.evidence": Field("Log lines or readings.", 1024, 5),
    "HealthStatus.ledger": Field(
        "Counts of recent events per GPU, for rules over an hour, a day or a week.", max_items=64
    ),
    "LedgerEntry.gpu": Field("GPU UUID, PCI address, or node.", 96),
    "LedgerEntry.what": Field("Event.", 96),
    "LedgerEntry.lastSeen": Field("Last time.", 40),
    "LedgerEntry.seen": Field("Count from each time on, as in 2026-01-31T12:00:00Z x3.", 64, 6),
    "HealthStatus.dropped": Field("Closed incidents that were left out for size."),
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
    "QuarantineSpec.nodeName": Field("Node; immutable.", 253, immutable=True, pattern=NODE_NAME),
    "QuarantineSpec.nodeUID": Field("UID of the Node; set by the remediator.", 64),
    "QuarantineSpec.bootID": Field("Boot at open; set by the remediator.", 64),
    "QuarantineSpec.causes": Field(
        "Why the node is out of service. The session ends with the last open cause.", max_items=64
    ),
    "QuarantineSpec.level": Field(
        "Cordon stops new pods; Drain also evicts.", enum=("Cordon", "Drain"), default="Drain"
    ),
    "QuarantineSpec.hold": Field("Do not release the node. A drain continues.", default=False),
    "QuarantineSpec.release": Field("Request to release the node now."),
    "ReleaseRequest.by": Field("User.", 256),
    "ReleaseRequest.reason": Field("Why.", 1024),
    "ReleaseRequest.at": Field("Time of the request.", 40),
    "QuarantineSpec.repair": Field("Approval of one repair step."),
    "RepairRequest.step": Field(
        "The proposed step, or another with an adapter.", 32, pattern="^[A-Za-z0-9]*$"
    ),
    "RepairRequest.by": Field("User.", 256),
    "RepairRequest.reason": Field("Why.", 1024),
    "RepairRequest.at": Field("Time of approval; valid for the faults of that time.", 40),
    "QuarantineStatus.mode": Field("Enforce or Shadow.", 16),
    "QuarantineStatus.phase": Field("Phase of the session.", 32),
    "QuarantineStatus.phaseSince": Field("Start of the phase.", 40),
    "QuarantineStatus.bootID": Field("Boot that is validated.", 64),
    "QuarantineStatus.reason": Field(
        "CamelCase code of the most severe cause, or the user of a manual request.", 63
    ),
    "QuarantineStatus.message": Field(
        "One sentence: what was done, what is next, what blocks it.", 1024
    ),
    "QuarantineStatus.until": Field(
        "When the blocker expires or the session continues by itself, at the latest. Absent if it "
        "waits for something without a time limit.",
        40,
    ),
    "QuarantineStatus.conditions": Field(
        "Blocked, Paused, NeedsHuman, NodeUnreachable, Storm, Replace, RepairProposed."
    ),
    "Condition.type": Field("Condition.", 63),
    "Condition.status": Field("True, False or Unknown.", 16),
    "Condition.reason": Field("CamelCase code.", 63),
    "Condition.message": Field("One sentence.", 1024),
    "Condition.lastTransitionTime": Field("When status last changed.", 40),
    "QuarantineStatus.drain": Field("Progress of the drain."),
    "DrainStatus.evicted": Field("Evicted pods."),
    "DrainStatus.recent": Field("The first 20 evicted pods.", 512, 20),
    "DrainStatus.waiting": Field("Pods that the drain waits for."),
    "Pods.named": Field("At most 20 of them.", max_items=20),
    "Pods.more": Field("Number of others."),
    "PodNote.name": Field("namespace/name of a pod, or `volume NAME`.", 512),
    "PodNote.why": Field("Why it is on the node.", 512),
    "DrainStatus.blocked": Field("Blockers.", max_items=20),
    "BlockedBy.pdb": Field("namespace/name of the PodDisruptionBudget.", 512),
    "BlockedBy.pods": Field("The pods."),
    "BlockedBy.owner": Field("Owner of the pods.", 512),
    "BlockedBy.why": Field("Reason.", 1024),
    "BlockedBy.permanent": Field("True if waiting does not help."),
    "BlockedBy.remedy": Field("Remedy.", 1024),
    "DrainStatus.scope": Field(
        "Which pods leave: Holders (of the accused GPUs), GPUPods or Node (all).", 32
    ),
    "DrainStatus.scopeReason": Field("Why the scope is wider than the policy asks.", 512),
    "DrainStatus.leftByPolicy": Field("Pods that the policy leaves."),
    "DrainStatus.leftByFailure": Field("Pods that could not be evicted."),
    "DrainStatus.forceRefused": Field(
        "Why the API server refused to delete pods after the drain timeout.", 63
    ),
    "DrainStatus.startedAt": Field("Start of the drain.", 40),
    "DrainStatus.noticeSeconds": Field(
        "How long after startedAt and suspendedSeconds the first pod is evicted (drain.notice)."
    ),
    "DrainStatus.suspendedSeconds": Field("Time that does not count: no API server, or paused."),
    "QuarantineStatus.devices": Field(
        "The devices that are isolated instead of the node, each on record before its "
        "DeviceTaintRule is created.",
        max_items=64,
    ),
    "IsolatedDevice.uuid": Field("UUID of the GPU that the device is or belongs to.", 96),
    "IsolatedDevice.driver": Field("The DRA driver.", 63),
    "IsolatedDevice.pool": Field("The pool of its ResourceSlice.", 253),
    "IsolatedDevice.device": Field("Its name in the ResourceSlice.", 63),
    "IsolatedDevice.rule": Field("Name of its DeviceTaintRule; empty once it is removed.", 63),
    "IsolatedDevice.ruleUID": Field("UID of that rule; empty until it was created.", 64),
    "IsolatedDevice.taints": Field(
        "Taints of the DRA driver on the device, as key=value:effect.", 256, 8
    ),
    "QuarantineStatus.repair": Field(
        "Repair steps of the session, recorded before their requests.", max_items=16
    ),
    "RepairAttempt.step": Field(
        "ResetGPU, RestartDriver, RestartNode, PowerCycle or ReplaceNode.", 32
    ),
    "RepairAttempt.adapter": Field("Adapter.", 63),
    "RepairAttempt.attempt": Field("Number of the attempt on this node within repair.window."),
    "RepairAttempt.startedAt": Field("Start of the step.", 40),
    "RepairAttempt.askedAt": Field("Time of the request; empty without one.", 40),
    "RepairAttempt.endedAt": Field("End of the step.", 40),
    "RepairAttempt.object": Field("Name of the request.", 253),
    "RepairAttempt.target": Field("Object that carries the request."),
    "RepairTarget.apiVersion": Field("API group and version.", 128),
    "RepairTarget.resource": Field("Plural of the kind.", 63),
    "RepairTarget.namespace": Field("Namespace.", 63),
    "RepairTarget.name": Field("Name.", 253),
    "RepairTarget.uid": Field("UID; empty for an object that the step creates.", 64),
    "RepairAttempt.before": Field("The node before the step, for the proof."),
    "RepairBefore.bootID": Field("Boot of the node.", 64),
    "RepairBefore.nodeUID": Field("UID of the Node.", 64),
    "RepairBefore.gpus": Field("The GPUs, faulty ones first.", max_items=32),
    "RepairGpu.uuid": Field("GPU UUID.", 96),
    "RepairGpu.serial": Field("Board serial number.", 64),
    "RepairGpu.accused": Field("True if a cause names it."),
    "RepairBefore.resetPending": Field("True if the driver requested a reset."),
    "RepairAttempt.action": Field(
        "The adapter's action, as in the policy file; the withdrawal uses it."
    ),
    "RepairAttempt.cleared": Field(
        "Labels that moved pods off the GPUs, with their previous values (label=value); "
        "restored at the end.",
        400,
        max_items=16,
    ),
    "RepairAttempt.state": Field(
        "Planned, Held, Asked, Proven, Failed or Withdrawn. gpuward verifies Proven itself.", 16
    ),
    "RepairAttempt.proof": Field("What was observed, or what is missing.", 512),
    "QuarantineStatus.validation": Field(
        "Tests before a release, recorded before their Jobs.", max_items=16
    ),
    "ValidationAttempt.object": Field("Name of its Job.", 63),
    "ValidationAttempt.attempt": Field("Number of the test."),
    "ValidationAttempt.provider": Field("Job: made from the PodTemplate.", 32),
    "ValidationAttempt.template": Field("Its PodTemplate.", 253),
    "ValidationAttempt.startedAt": Field("Start.", 40),
    "ValidationAttempt.endedAt": Field("End.", 40),
    "ValidationAttempt.bootID": Field("Boot that it tests.", 64),
    "ValidationAttempt.jobUID": Field("UID of its Job.", 64),
    "ValidationAttempt.state": Field(
        "Planned, Asked, Passed, Failed, Unknown, Outdated, Withdrawn or Skipped. Only "
        "Passed and Skipped release a node.",
        16,
    ),
    "ValidationAttempt.verdict": Field("pass, degraded, fail or unknown.", 16),
    "ValidationAttempt.message": Field("Result, or why there is none.", 512),
    "ValidationAttempt.checks": Field("Measurements, the most severe first.", max_items=8),
    "ValidationCheck.id": Field("Measurement.", 64),
    "ValidationCheck.gpu": Field("UUID of the GPU; empty for the node.", 96),
    "ValidationCheck.verdict": Field("pass, degraded, fail or unknown.", 16),
    "ValidationCheck.value": Field("Measured value."),
    "ValidationCheck.unit": Field("Unit.", 32),
    "ValidationCheck.floor": Field("Minimum."),
    "ValidationCheck.note": Field("Note.", 256),
    "QuarantineStatus.timeline": Field("Events, in order.", max_items=100),
    "TimelineEntry.at": Field("Time.", 40),
    "TimelineEntry.step": Field("Event.", 64),
    "TimelineEntry.subject": Field("Repair step or pod.", 512),
    "TimelineEntry.message": Field("One sentence.", 1024),
    "TimelineEntry.by": Field("User or program.", 256),
    "QuarantineStatus.evidence": Field(
        "Copy of GPUNodeHealth from the opening, and which GPU replaced which."
    ),
    "EvidenceSpec.session": Field("GPUQuarantine of the evidence.", 253),
    "EvidenceSpec.nodeName": Field("Node.", 253),
    "EvidenceSpec.nodeUID": Field("UID of the Node.", 64),
    "EvidenceSpec.bootID": Field("Boot of the node.", 64),
    "EvidenceSpec.takenAt": Field("Time.", 40),
    "EvidenceSpec.agentVersion": Field("Version of the agent.", 64),
    "EvidenceSpec.rulesVersion": Field("Version of the rules and catalogs.", 64),
    "EvidenceSpec.driverVersion": Field("NVIDIA driver version.", 64),
    "EvidenceSpec.virtualization": Field("none, passthrough or vgpu.", 32),
    "EvidenceSpec.sources": Field("The agent's collectors."),
    "EvidenceSpec.gpus": Field("The GPUs, faulty ones first.", max_items=64),
    "EvidenceSpec.topology": Field("Topology by design."),
    "EvidenceSpec.incidents": Field("The incidents.", max_items=64),
    "EvidenceSpec.kernelLog": Field(
        "Kernel log lines about driver, GPUs and bus, with times; unprintable "
        "characters are escaped.",
        262144,
    ),
    "EvidenceSpec.kernelLinesDropped": Field("Lines in the middle that were left out for size."),
    "EvidenceSpec.missing": Field("What could not be read, and why."),
    "EvidenceSpec.sha256": Field(
        "SHA-256 over the other fields as JSON with sorted keys and no spaces.", 64, immutable=True
    ),
    "EvidenceGpu.uuid": Field("GPU UUID.", 96),
    "EvidenceGpu.index": Field("NVML index."),
    "EvidenceGpu.pci": Field("PCI address.", 16),
    "EvidenceGpu.above": Field("PCI addresses of the bridges above it, root port first.", 16, 8),
    "EvidenceGpu.moduleId": Field("Position on the baseboard.", 16),
    "EvidenceGpu.serial": Field("Serial number.", 64),
    "EvidenceGpu.product": Field("Product name.", 96),
    "EvidenceGpu.board": Field("Board part number.", 64),
    "EvidenceGpu.vbios": Field("VBIOS version.", 64),
    "EvidenceGpu.inforom": Field("InfoROM image version.", 64),
    "EvidenceGpu.readAt": Field("Last poll.", 40),
    "EvidenceGpu.recoveryAction": Field("Recovery action that the driver reports.", 64),
    "EvidenceGpu.links": Field("Connection to each GPU, and the far end of each link.", 160, 128),
    "EvidenceGpu.readings": Field("Last value of each reading.", max_items=192),
    "EvidenceReading.signal": Field("Reading.", 64),
    "EvidenceReading.value": Field("Value as text.", 256),
    "PauseSpec.scope": Field("Nodes that are paused."),
    "PauseScope.all": Field("Every node.", default=False),
    "PauseScope.nodeSelector": Field("Nodes that this label selector matches."),
    "PauseScope.nodes": Field("Nodes by name.", 253, 5000, pattern=NODE_NAME),
    "PauseSpec.reason": Field("Why.", 1024),
    "PauseSpec.by": Field("User.", 256),
    "PauseSpec.until": Field("End of the pause; empty means never.", 40),
    "PauseSpec.ended": Field("Who ended it early; only `until` counts."),
    "PauseEnded.by": Field("User.", 256),
    "PauseEnded.until": Field("Planned end; empty means never.", 40),
}
