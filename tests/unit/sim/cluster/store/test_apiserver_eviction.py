"""The Eviction API over HTTP, row by row."""

import pytest

from tests.support.cluster.apiserver_support import (
    BUDGETS,
    PODS,
    budget,
    eviction,
    running_pod,
    serving,
)

EVICT = f"{PODS}/p1/eviction"
VIOLATION = "Cannot evict pod as it would violate the pod's disruption budget."


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
