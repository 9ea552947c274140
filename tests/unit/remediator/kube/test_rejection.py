"""When a restart could help a remediator that the API server does not accept."""

import ssl

import pytest

from remediator.kube.answer import LONGEST_S, Rejection, is_tls_failure

REFUSED = ssl.SSLCertVerificationError("unable to get local issuer certificate")
DOWN = ConnectionRefusedError("Connection refused")


@pytest.mark.parametrize("cause", [401, REFUSED], ids=["token", "certificate"])
def test_a_rejection_that_lasts_is_as_old_as_the_last_accepted_answer(cause):
    rejection = Rejection(100.0)
    rejection.answered(200, 200.0)
    for now in range(210, 1000, 30):
        if isinstance(cause, int):
            rejection.answered(cause, now)
        else:
            rejection.failed(cause, now)
    assert rejection.lasts_s(1000.0) == 800.0 > LONGEST_S
    rejection.answered(403, 1001.0)
    assert rejection.lasts_s(1001.0) == 0.0


def test_a_server_that_is_down_rejects_nobody():
    rejection = Rejection(0.0)
    rejection.failed(REFUSED, 10.0)
    for now in range(20, 2000, 30):
        rejection.failed(DOWN, now)
        rejection.failed(TimeoutError(), now)
    assert rejection.lasts_s(2000.0) == 0.0


def test_an_error_of_tls_is_found_behind_what_wraps_it():
    wrapped = OSError("cannot connect")
    wrapped.__cause__ = REFUSED
    assert is_tls_failure(wrapped)
    assert not is_tls_failure(DOWN)
