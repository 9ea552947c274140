"""The Eviction API over HTTP, row by row."""

from __future__ import annotations

import pytest

from tests.support.cluster.apiserver_support import (
    BUDGETS,
    NAMESPACES,
    PODS,
    budget,
    eviction,
    pod,
    running_pod,
    serving,
)

EVICT = f"{PODS}/p1/eviction"
VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."


async def test_an_eviction_without_budgets_answers_201_and_marks_the_pod():
    async with serving() as api:
        await running_pod(api)
        answer = await api("POST", EVICT, eviction())
        assert (answer.code, answer.body["status"]) == (201, "Success")
        left = await api.get(f"{PODS}/p1")
        assert left["metadata"]["deletionTimestamp"]
        assert left["metadata"]["deletionGracePeriodSeconds"] == 30
        condition = next(
            one for one in left["status"]["conditions"] if one["type"] == "DisruptionTarget"
        )
        assert condition["status"] == "True"
        assert condition["reason"] == "EvictionByEvictionAPI"
        assert condition["message"] == "Eviction API: evicting"


async def test_an_accepted_eviction_charges_the_budget():
    async with serving() as api:
        await running_pod(api)
        await budget(api, disruptionsAllowed=2, currentHealthy=3, desiredHealthy=1)
        assert (await api("POST", EVICT, eviction())).code == 201
        status = (await api.get(f"{BUDGETS}/b1"))["status"]
        assert status["disruptionsAllowed"] == 1
        assert list(status["disruptedPods"]) == ["p1"]


@pytest.mark.parametrize(
    ("status", "retry_after", "cause"),
    [
        pytest.param(
            {"currentHealthy": 1, "desiredHealthy": 1},
            None,
            "The disruption budget b1 needs 1 healthy pods and has 1 currently",
            id="not-enough-healthy",
        ),
        pytest.param(
            {"currentHealthy": 1},
            None,
            "The disruption budget b1 does not allow evicting pods currently",
            id="nothing-expected",
        ),
        pytest.param(
            {
                "conditions": [
                    {
                        "type": "DisruptionAllowed",
                        "status": "False",
                        "reason": "SyncFailed",
                        "message": "no controller",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }
                ]
            },
            None,
            "The disruption budget b1 does not allow evicting pods currently because it failed "
            "sync: no controller",
            id="failed-sync",
        ),
        pytest.param(
            {"observed": False, "disruptionsAllowed": 5},
            "10",
            "The disruption budget b1 is still being processed by the server.",
            id="stale-status",
        ),
    ],
)
async def test_a_budget_that_allows_nothing_answers_429(status, retry_after, cause):
    async with serving() as api:
        await running_pod(api)
        await budget(api, **status)
        answer = await api("POST", EVICT, eviction())
        assert (answer.code, answer.reason, answer.message) == (429, "TooManyRequests", VIOLATION)
        assert answer.headers.get("Retry-After") == retry_after
        assert answer.causes == [{"reason": "DisruptionBudget", "message": cause}]
        assert "deletionTimestamp" not in (await api.get(f"{PODS}/p1"))["metadata"]


async def test_the_last_disruption_turns_the_budgets_condition():
    async with serving() as api:
        await running_pod(api, "p1")
        await running_pod(api, "p2")
        await budget(api, disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1)
        assert (await api("POST", EVICT, eviction())).code == 201
        conditions = (await api.get(f"{BUDGETS}/b1"))["status"]["conditions"]
        assert [(one["type"], one["status"], one["reason"]) for one in conditions] == [
            ("DisruptionAllowed", "False", "InsufficientPods")
        ]
        answer = await api("POST", f"{PODS}/p2/eviction", eviction("p2"))
        assert (answer.code, answer.headers.get("Retry-After")) == (429, None)


async def test_two_budgets_answer_500_without_a_reason():
    async with serving() as api:
        await running_pod(api)
        await budget(api, "b1", disruptionsAllowed=1)
        await budget(api, "b2", disruptionsAllowed=1)
        answer = await api("POST", EVICT, eviction())
        assert (answer.code, answer.reason, answer.details) == (500, "", {})
        assert answer.message == (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support."
        )


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        pytest.param(EVICT, "pods", id="pod"),
        pytest.param(f"{NAMESPACES}/nowhere/pods/p1/eviction", "namespaces", id="namespace"),
    ],
)
async def test_what_is_missing_answers_404_and_is_named(path, kind):
    async with serving() as api:
        body = eviction()
        body["metadata"].pop("namespace")
        answer = await api("POST", path, body)
        assert (answer.code, answer.reason, answer.details["kind"]) == (404, "NotFound", kind)


async def test_a_stale_uid_answers_409_after_the_budget_was_charged():
    async with serving() as api:
        await running_pod(api)
        await budget(api, disruptionsAllowed=1, currentHealthy=2)
        answer = await api("POST", EVICT, eviction(preconditions={"uid": "another"}))
        assert (answer.code, answer.reason) == (409, "Conflict")
        assert answer.message.startswith('Operation cannot be fulfilled on Pod "p1": the UID in ')
        assert "the UID in the precondition (another) does not match" in answer.message
        assert answer.details == {"name": "p1", "kind": "Pod"}
        status = (await api.get(f"{BUDGETS}/b1"))["status"]
        assert (status["disruptionsAllowed"], list(status["disruptedPods"])) == (0, ["p1"])
        assert "deletionTimestamp" not in (await api.get(f"{PODS}/p1"))["metadata"]


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_pods_that_do_not_run_bypass_even_an_empty_budget(phase):
    async with serving() as api:
        await running_pod(api, phase=phase)
        await budget(api, disruptionsAllowed=0, currentHealthy=1, desiredHealthy=1)
        assert (await api("POST", EVICT, eviction())).code == 201
        assert "disruptedPods" not in (await api.get(f"{BUDGETS}/b1"))["status"]


@pytest.mark.parametrize(
    ("policy", "status", "code"),
    [
        pytest.param("AlwaysAllow", {}, 201, id="always-allow"),
        pytest.param(None, {"currentHealthy": 2, "desiredHealthy": 1}, 201, id="healthy-budget"),
        pytest.param(
            "IfHealthyBudget", {"currentHealthy": 0, "desiredHealthy": 1}, 429, id="app-is-broken"
        ),
        pytest.param(None, {"currentHealthy": 0, "desiredHealthy": 0}, 429, id="nothing-desired"),
    ],
)
async def test_unready_pods_follow_the_unhealthy_pod_eviction_policy(policy, status, code):
    async with serving() as api:
        await running_pod(api, ready=False)
        spec = {"unhealthyPodEvictionPolicy": policy} if policy else {}
        await budget(api, spec=spec, **status)
        assert (await api("POST", EVICT, eviction())).code == code
        assert "disruptedPods" not in (await api.get(f"{BUDGETS}/b1"))["status"]


async def test_a_repeated_eviction_only_ever_shrinks_the_grace_period():
    async with serving() as api:
        await running_pod(api)

        async def grace_after(**options):
            assert (await api("POST", EVICT, eviction(**options))).code == 201
            return (await api.get(f"{PODS}/p1"))["metadata"]["deletionGracePeriodSeconds"]

        assert await grace_after() == 30
        assert await grace_after(gracePeriodSeconds=20) == 20
        assert await grace_after(gracePeriodSeconds=25) == 20
        assert (await api("POST", EVICT, eviction(gracePeriodSeconds=0))).code == 201
        assert (await api("GET", f"{PODS}/p1")).code == 404


async def test_dry_runs_are_checked_but_never_add_up():
    async with serving() as api:
        for name in ("p1", "p2", "p3"):
            await running_pod(api, name)
        await budget(api, disruptionsAllowed=1, currentHealthy=3, desiredHealthy=2)
        for name in ("p1", "p2", "p3"):
            answer = await api("POST", f"{PODS}/{name}/eviction", eviction(name), dryRun="All")
            assert answer.code == 201
        assert (await api.get(f"{BUDGETS}/b1"))["status"]["disruptionsAllowed"] == 1
        assert "deletionTimestamp" not in (await api.get(f"{PODS}/p1"))["metadata"]
        await api.patch(f"{BUDGETS}/b1/status", {"status": {"disruptionsAllowed": 0}})
        answer = await api("POST", EVICT, eviction(dryRun=["All"]))
        assert answer.code == 429


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(eviction("other"), 400, id="name-differs"),
        pytest.param({**eviction(), "apiVersion": "policy/v1beta1"}, 201, id="older-version"),
        pytest.param({**eviction(), "kind": "Pod"}, 400, id="another-kind"),
    ],
)
async def test_the_body_is_checked(body, code):
    async with serving() as api:
        await running_pod(api)
        assert (await api("POST", EVICT, body)).code == code


async def test_a_terminating_namespace_answers_403_with_its_cause():
    async with serving() as api:
        await api.post(NAMESPACES, {"metadata": {"name": "ending"}})
        await api.post(PODS.replace("default", "ending"), pod())
        await api.delete(f"{NAMESPACES}/ending")
        body = eviction()
        body["metadata"]["namespace"] = "ending"
        answer = await api("POST", EVICT.replace("default", "ending"), body)
        assert (answer.code, answer.reason) == (403, "Forbidden")
        assert answer.causes[0]["reason"] == "NamespaceTerminating"


@pytest.mark.parametrize(
    ("selector", "code"),
    [
        pytest.param(None, 201, id="no-selector-selects-nothing"),
        pytest.param({}, 429, id="empty-selector-selects-all"),
        pytest.param(
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]},
            429,
            id="expression",
        ),
    ],
)
async def test_which_pods_a_budget_covers(selector, code):
    async with serving() as api:
        await running_pod(api)
        await budget(api, spec={"selector": selector})
        assert (await api("POST", EVICT, eviction())).code == code


async def test_an_unbound_pod_is_gone_at_once_and_a_bound_one_needs_its_kubelet():
    async with serving() as api:
        await api.post(PODS, pod("unbound", None))
        await running_pod(api)
        answer = await api("POST", f"{PODS}/unbound/eviction", eviction("unbound"))
        assert answer.code == 201
        assert (await api("GET", f"{PODS}/unbound")).code == 404
        await api("POST", EVICT, eviction())
        uid = (await api.get(f"{PODS}/p1"))["metadata"]["uid"]
        await api.delete(f"{PODS}/p1", {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
        assert (await api("GET", f"{PODS}/p1")).code == 404
