"""The adapters that gpuward ships: one for each system that repairs nodes.

They are `rules/data/adapters.json`, in the words in which a policy brings its own. Fields follow
the documentation of each system; docs/repair.md has the recipe for each. A mark for replacement
on somebody else's object is never taken back; on our own Node, and an object that we made, it
goes with the session: the node may serve again by then. What is not plain from the rows:

- ClusterAPI acts only where a MachineHealthCheck selects the Machine. A kubelet may write its own
  Node's annotations: the Machine has to agree.
- Metal3: with a name behind the annotation the host stays off until it goes, so that power is seen
  off before it comes on again.
- The medik8s remediations are called like their node and take their spec from a template.
- NVSentinel's janitor says in its conditions what it sent, not that it helped: none is believed.
- GPUOperator evicts the driver's pod on the node, which its DaemonSet makes anew and which loads
  the driver anew.
- ResetGPUJob and RestartNodeJob are our own: a Job of one pod, by name on the node, so that the
  scheduler has no say and no taint is in its way. What it runs is a PodTemplate that is installed
  with it; facts reach the program through the pod's annotations. Our programs say with the
  statuses 1, 3 and 64 that they did not do it; a pod that is killed ends otherwise, and one that
  asked and was not answered ends with 2. Of a restart only that word counts, since a pod that the
  reboot itself ends has failed, too. A reset's 900 s are five minutes for those that let go, the
  reset, and the pull of an image.
"""

from __future__ import annotations

from typing import Final

import msgspec

from rules.catalog.data_file import data_file
from rules.repair.adapter import Adapter

ADAPTERS: Final = msgspec.json.decode(data_file("adapters.json"), type=dict[str, Adapter])
"""By the name that a policy uses."""
