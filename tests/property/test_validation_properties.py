"""Whatever was measured: what a verdict may never do."""

from __future__ import annotations

import json
import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rules.validate.contract import EXIT_STATUS, MAX_BYTES, Check, Result, Verdict, read, within
from rules.validate.findings import CheckId, Findings, RateSeen, Stop, Stopped, Subject, SumsSeen
from rules.validate.judge import judge
from rules.validate.rates import rate_checks
from rules.validate.vote import sum_checks

texts = st.text(max_size=200)
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
checks = st.builds(
    Check,
    id=st.text(max_size=30),
    gpu=texts,
    peer=texts,
    verdict=st.sampled_from(Verdict),
    value=numbers,
    floor=numbers,
    ceiling=numbers,
    note=texts,
)
results = st.builds(
    Result,
    verdict=st.sampled_from(Verdict),
    message=st.text(max_size=3000),
    checks=st.lists(checks, max_size=60),
    notes=st.lists(texts, max_size=20),
)
sums = st.lists(
    st.builds(
        SumsSeen,
        gpu=st.uuids().map(str),
        launches=st.integers(0, 5),
        first=st.integers(0, 2),
        differing=st.sampled_from([0, 0, 0, 1]),
    ),
    max_size=9,
)
rates = st.lists(
    st.builds(
        RateSeen,
        check=st.sampled_from([CheckId.HOST_TO_DEVICE, CheckId.PEER]),
        gpu=st.sampled_from(["a", "b", "c", "d"]),
        peer=st.sampled_from(["", "a", "b"]),
        gigabytes=st.floats(1, 1000),
        link=st.sampled_from(["", "NV18", "SYS"]),
    ),
    max_size=20,
    unique_by=lambda rate: (rate.check, rate.gpu, rate.peer),
)


@given(results)
def test_a_result_fits_and_says_the_same_or_graver_when_read_back(result: Result) -> None:
    body = within(result)
    assert len(body) <= MAX_BYTES
    kept = msgspec.json.decode(body, type=Result)
    assert kept.verdict is result.verdict
    assert len(kept.checks) + kept.omitted == len(result.checks)
    said = read(EXIT_STATUS[result.verdict], body.decode())
    assert EXIT_STATUS[said.verdict] != 0 or result.verdict is Verdict.PASS


@given(st.none() | st.integers(-20, 260), st.text() | results.map(lambda r: within(r).decode()))
def test_nothing_but_a_status_of_0_beside_clean_words_passes(
    status: int | None, text: str
) -> None:
    if read(status, text).verdict is Verdict.PASS:
        assert status == 0
        assert not text.strip() or json.loads(text)["verdict"] == "pass"


@given(sums)
def test_a_majority_is_never_accused_and_a_minority_always(found: list[SumsSeen]) -> None:
    verdicts = {check.gpu: check.verdict for check in sum_checks(found)}
    voters = [one for one in found if one.launches and not one.differing]
    for one in voters:
        agreeing = sum(other.first == one.first for other in voters)
        if 2 * agreeing > len(voters):
            assert verdicts[one.gpu] is Verdict.PASS
        else:
            assert verdicts[one.gpu] is Verdict.FAIL
    assert all(
        verdicts[one.gpu] is Verdict.FAIL for one in found if one.launches and one.differing
    )


@given(rates, st.floats(0.5, 1000))
def test_of_an_unknown_product_only_proportions_count(
    found: list[RateSeen], factor: float
) -> None:
    products = dict.fromkeys("abcd", "NVIDIA X900")
    scaled = [msgspec.structs.replace(one, gigabytes=one.gigabytes * factor) for one in found]
    both = zip(rate_checks(found, products), rate_checks(scaled, products), strict=True)
    for before, after in both:
        assert (before.floor is None) is (after.floor is None)
        # Values and floors are rounded: what lies at the floor may fall on either side.
        near = before.value and before.floor and abs(before.value / before.floor - 1) < 0.01
        assert near or before.verdict is after.verdict


@given(rates)
def test_the_fastest_of_a_kind_is_never_slow_by_comparison(found: list[RateSeen]) -> None:
    products = dict.fromkeys("abcd", "NVIDIA X900")
    for rate, check in zip(found, rate_checks(found, products), strict=True):
        alike = [
            other.gigabytes
            for other in found
            if (other.check, other.link, bool(other.peer))
            == (rate.check, rate.link, bool(rate.peer))
        ]
        if rate.gigabytes == max(alike):
            assert check.verdict is Verdict.PASS


@given(rates, sums, st.randoms(use_true_random=False))
def test_the_order_of_findings_does_not_matter(
    found: list[RateSeen], voted: list[SumsSeen], shuffle: random.Random
) -> None:
    gpus = [one.gpu for one in voted]
    findings = Findings(
        subjects=[Subject(uuid=gpu, index=index) for index, gpu in enumerate(gpus)],
        chosen=gpus,
        rates=found,
        sums=voted,
    )
    mixed = msgspec.structs.replace(
        findings,
        rates=shuffle.sample(found, len(found)),
        sums=shuffle.sample(voted, len(voted)),
    )
    assert judge(mixed).verdict is judge(findings).verdict


@given(sums, st.sampled_from(Stop), st.integers(1, 999))
def test_a_step_without_a_value_never_passes(voted: list[SumsSeen], why: Stop, code: int) -> None:
    stop = Stopped(check=CheckId.MEMORY, gpu="x", why=why, call="cuX", code=code)
    findings = Findings(
        subjects=[Subject(uuid="x", index=0)], chosen=["x"], sums=voted, stopped=[stop]
    )
    assert judge(findings).verdict is not Verdict.PASS
