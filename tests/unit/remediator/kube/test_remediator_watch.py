"""A cache follows its resource through everything a server or a network does to a watch."""

import asyncio
import json
from dataclasses import replace

import msgspec
import pytest
from aiohttp import web

from remediator.kube.watch_events import Resource
from rules.api.nodes import NodeView
from tests.support.remediator.scripted_server import event, node, page, refusal, stream, until
from tests.support.remediator.watched_cache import NODES, SkippingClock, is_watch, watching

EXPIRED = event("ERROR", {"kind": "Status", "code": 410, "message": "too old"})
BOOKMARK = event("BOOKMARK", node("", 6))
OTHER = Resource(name="nodes", path=NODES.path, query={"labelSelector": "other"})


def refused(code):
    """A server that answers a watch so."""

    async def answer(_):
        return refusal(code, "Refused", "no")

    return answer


async def quiet(request):
    """An empty list and a watch without events."""
    return await stream(request) if is_watch(request) else page([], 5)


async def test_a_list_is_read_page_by_page_and_followed_from_its_version(tmp_path):
    asked = []

    async def handler(request):
        asked.append(dict(request.query))
        if is_watch(request):
            return await stream(request, event("MODIFIED", node("b", 8, gpu="h100")))
        if "continue" not in request.query:
            return page([node("a", 1)], 7, continue_="next")
        return page([node("b", 2)], 7)

    async with watching(tmp_path, handler, page_size=1) as (cache, heard):
        await until(lambda: ("changed", "b") in heard.changes)
        assert heard.changes == [("added", "a"), ("added", "b"), ("changed", "b")]
        assert cache.synced
        assert cache.items["b"].labels == {"gpu": "h100"}
    assert [query.get("continue") for query in asked[:2]] == [None, "next"]
    assert asked[2]["resourceVersion"] == "7"
    assert all(query["labelSelector"] == "gpu" for query in asked)


async def test_a_cache_of_metadata_asks_list_and_watch_for_it(tmp_path):
    asked = {}

    async def handler(request):
        asked[is_watch(request)] = request.headers["Accept"]
        return await quiet(request)

    async with watching(tmp_path, handler) as (cache, _):
        await until(lambda: True in asked)
        assert set(asked.values()) == {"application/json"}
        asked.clear()
        cache.use(replace(NODES, metadata_only=True))
        await until(lambda: True in asked)
    form = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
    assert asked == {False: form.format("List"), True: form.format("")}


@pytest.mark.parametrize(
    "forgotten",
    [
        pytest.param(refused(410), id="refused with 410"),
        pytest.param(refused(400), id="refused with 400"),
        pytest.param(refused(422), id="refused with 422"),
        pytest.param(lambda r: stream(r, EXPIRED), id="ERROR 410 in the stream"),
        pytest.param(lambda r: stream(r, b'{"type": "ADDED", "obj'), id="a line that is no event"),
    ],
)
async def test_s43_a_watch_that_cannot_go_on_lists_again_and_notices_what_it_missed(
    tmp_path, forgotten
):
    lists = 0

    async def handler(request):
        nonlocal lists
        if not is_watch(request):
            lists += 1
            if lists == 1:
                return page([node("a", 1), node("gone", 1), node("same", 1)], 5)
            return page([node("a", 9), node("same", 1)], 10)
        return await (forgotten(request) if lists == 1 else stream(request))

    async with watching(tmp_path, handler) as (cache, heard):
        await until(lambda: lists == 2 and "gone" not in cache.items)
        assert heard.changes[3:] == [("removed", "gone"), ("changed", "a")]


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(refused(410), id="refused with 410"),
        pytest.param(refused(400), id="refused with 400"),
        pytest.param(refused(503), id="refused with 503"),
        pytest.param(lambda r: stream(r, BOOKMARK, EXPIRED), id="410 after a first event"),
        pytest.param(lambda r: stream(r, hold_s=0), id="ended at once"),
        pytest.param(lambda r: stream(r, BOOKMARK, hold_s=0), id="ended after a first event"),
    ],
)
async def test_a_watch_that_never_lives_makes_requests_ever_rarer(tmp_path, ends):
    """The lists between the watches succeed: they must not keep the requests from becoming rare.

    As client-go's reflector: 0.8 s doubling to 30 s.
    """
    asked = []

    async def handler(request):
        asked.append("watch" if is_watch(request) else "list")
        if not is_watch(request):
            return page([], 5)
        return await ends(request)

    async with watching(tmp_path, handler, clock=SkippingClock) as (_, heard):
        slept = heard.clock.slept
        await until(lambda: len(slept) >= 8)
        assert 0.6 <= slept[0] <= 1.0
        assert sum(slept[:5]) >= 0.75 * 24.8, "five requests take client-go 25 s, too"
        assert 22.5 <= slept[7] <= 37.5
    assert len(asked) <= 2 * (len(slept) + 1), "one list and one watch each time"


async def test_only_a_watch_that_lived_makes_the_next_wait_short_again(tmp_path):
    watches = 0

    async def handler(request):
        nonlocal watches
        if not is_watch(request):
            return page([], 6)
        watches += 1
        if watches != 4:
            return await stream(request, BOOKMARK, hold_s=0)
        asyncio.get_running_loop().call_later(0.1, heard.clock.go_on, 20)
        return await stream(request, BOOKMARK, hold_s=0.3)

    async with watching(tmp_path, handler, clock=SkippingClock) as (_, heard):
        slept = heard.clock.slept
        await until(lambda: len(slept) >= 5)
        assert slept[0] < slept[1] < slept[2], "three watches that ended at once"
        assert slept[3] <= 1.0, "the fourth lived for 20 s: no wait after it, then a short one"


async def test_bookmarks_move_the_version_from_which_a_broken_watch_goes_on(tmp_path):
    versions = []

    async def handler(request):
        if not is_watch(request):
            return page([], 42 if request.query["limit"] == "1" else 5)
        versions.append(request.query["resourceVersion"])
        if len(versions) == 1:
            return await stream(request, event("BOOKMARK", node("", 42)), hold_s=0)
        return await stream(request)

    async with watching(tmp_path, handler):
        await until(lambda: len(versions) == 2)
    assert versions == ["5", "42"]


async def test_s43_after_silence_only_a_list_is_believed(tmp_path):
    asked = []

    async def handler(request):
        asked.append("watch" if is_watch(request) else "list")
        return await quiet(request)

    async with watching(tmp_path, handler, silence_s=0.1):
        await until(lambda: asked.count("watch") == 2)
    assert asked[:4] == ["list", "watch", "list", "watch"]


async def test_a_failing_watch_makes_the_cache_old_and_has_a_cause(tmp_path):
    broken = False

    async def handler(request):
        if broken:
            return refusal(500, "InternalError", "etcd is away")
        return await stream(request, hold_s=0.05) if is_watch(request) else page([], 5)

    async with watching(tmp_path, handler) as (cache, heard):
        await until(lambda: cache.synced)
        assert cache.too_old() == ""
        broken = True
        await until(lambda: "etcd is away" in cache.problem)
        assert cache.too_old() == "", "a moment without a watch is normal"
        heard.clock.ahead_s += 21
        assert "nodes" in cache.too_old()
        assert "etcd is away" in cache.too_old()
        broken = False
        await until(lambda: not cache.too_old())


@pytest.mark.parametrize(
    ("options", "quiet_s", "more_s"),
    [
        pytest.param({}, 75, 30, id="bookmarks come about once a minute"),
        pytest.param({"silence_s": 20.0}, 25, 10, id="listed often"),
    ],
)
async def test_a_watch_that_hangs_makes_the_view_old(tmp_path, options, quiet_s, more_s):
    async with watching(tmp_path, quiet, **options) as (cache, heard):
        await until(lambda: cache.unfollowed_since is None)
        heard.clock.ahead_s += quiet_s
        assert cache.too_old() == ""
        heard.clock.ahead_s += more_s
        assert "nodes" in cache.too_old()


async def test_a_server_cannot_send_a_watch_away_for_an_hour(tmp_path):
    asked = []

    async def handler(request):
        asked.append(1)
        answer = refusal(503, "ServiceUnavailable", "later")
        answer.headers["Retry-After"] = "3600"
        return answer

    async with watching(tmp_path, handler) as (_, heard):
        await until(lambda: heard.clock.slept)
        assert max(heard.clock.slept) <= 60


async def test_a_partly_decoded_object_is_counted_and_logged_with_its_problem(tmp_path):
    broken = node("a", 8)
    broken["spec"] = {"unschedulable": "yes"}

    async def handler(request):
        if not is_watch(request):
            odd = {"metadata": {"name": "odd"}, "spec": 3}
            return page([node("a", 1), node("gone", 1), odd, {"metadata": 5}], 5)
        gone = {"metadata": {"name": "gone", "resourceVersion": "9"}, "spec": []}
        changes = event("MODIFIED", broken), event("DELETED", gone), event("ADDED", node("b", 9))
        return await stream(request, *changes)

    async with watching(tmp_path, handler) as (cache, _):
        await until(lambda: "b" in cache.items)
        assert set(cache.items) == {"a", "b", "odd"}
        assert cache.items["a"].metadata.resource_version == "8"
        assert "spec.unschedulable" in cache.items["a"].doubt
        assert "spec" in cache.items["odd"].doubt
        assert cache.broken_objects == 3


async def test_a_listener_that_stumbles_over_one_object_hears_of_the_others(tmp_path):
    async def handler(request):
        if not is_watch(request):
            return page([node("a", 1)], 5)
        return await stream(request, event("ADDED", node("b", 8)), event("ADDED", node("c", 9)))

    heard = []

    def listener(key, before, after):
        heard.append(key)
        if key == "b":
            raise ZeroDivisionError

    async with watching(tmp_path, handler, listener=listener) as (cache, _):
        await until(lambda: "c" in heard)
        assert set(cache.items) == {"a", "b", "c"}


DEFINED = Resource(name="gpuquarantines", path="/x", crd="gpuquarantines.gpuward.io")


@pytest.mark.parametrize(
    ("code", "resource", "expected"),
    [
        (
            404,
            DEFINED,
            ["gpuquarantines.gpuward.io is missing", "kubectl apply -k daemonset/crds"],
        ),
        (403, NODES, ["no such right", "ClusterRole"]),
        (401, NODES, ["401", "service account", "ClusterRole"]),
    ],
    ids=["CRD missing", "permission missing", "token expired"],
)
async def test_a_refused_list_has_a_remedy_and_is_retried(tmp_path, code, resource, expected):
    refused = True

    async def handler(request):
        return refusal(code, "Refused", "no such right") if refused else await quiet(request)

    async with watching(tmp_path, handler, resource) as (cache, _):
        await until(lambda: cache.problem)
        assert not cache.synced
        for text in expected:
            assert text in cache.problem
        refused = False
        await until(lambda: cache.synced)
        assert cache.problem == ""


async def test_a_changed_selection_is_listed_at_once(tmp_path):
    async def handler(request):
        if is_watch(request):
            return await stream(request)
        return page([node("x" if request.query["labelSelector"] == "other" else "a", 1)], 5)

    async with watching(tmp_path, handler) as (cache, heard):
        await until(lambda: cache.synced)
        await asyncio.sleep(0.05)
        cache.use(OTHER)
        await until(lambda: list(cache.items) == ["x"])
        assert heard.changes == [("added", "a"), ("removed", "a"), ("added", "x")]


async def test_a_selection_that_changes_while_its_watch_begins_is_listed(tmp_path):
    """The answer to the old question must not pass for one to the new."""
    asked, begins = asyncio.Event(), asyncio.Event()

    async def handler(request):
        other = request.query["labelSelector"] == "other"
        if not is_watch(request):
            return page([node("x" if other else "a", 1)], 5)
        if not other:
            asked.set()
            await begins.wait()
            return await stream(request, event("ADDED", node("b", 7)))
        return await stream(request)

    async with watching(tmp_path, handler) as (cache, _):
        await asked.wait()
        cache.use(OTHER)
        begins.set()
        await until(lambda: cache.synced)
        assert list(cache.items) == ["x"]


async def test_a_watch_that_does_not_bring_what_was_just_written_is_old(tmp_path):
    late = asyncio.Event()

    async def hanging(request):
        if not is_watch(request):
            return page([node("a", 1)], 5)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await late.wait()
        await response.write(json.dumps(event("MODIFIED", node("a", 9))).encode() + b"\n")
        await asyncio.sleep(3600)
        return response

    async with watching(tmp_path, hanging) as (cache, heard):
        await until(lambda: cache.unfollowed_since is None)
        cache.learn(msgspec.convert(node("a", 8), NodeView))
        assert cache.too_old() == ""
        heard.clock.ahead_s += 21
        assert "nodes" in cache.too_old()
        late.set()
        await until(lambda: not cache.too_old())


@pytest.mark.parametrize("body", [{}, {"status": "ok"}], ids=["nothing", "of something else"])
async def test_json_that_is_no_list_does_not_empty_the_cache(tmp_path, body):
    answers = [page([node("a", 1)], 5)]
    asked = []

    async def handler(request):
        if is_watch(request):
            return refusal(410, "Expired", "too old")
        asked.append(1)
        return answers.pop() if answers else web.json_response(body)

    async with watching(tmp_path, handler) as (cache, _):
        await until(lambda: len(asked) > 1 and "200" in cache.problem)
        assert list(cache.items) == ["a"]
