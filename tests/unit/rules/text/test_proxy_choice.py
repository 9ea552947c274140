"""The proxy of a URL, by the rules of Go's httpproxy."""

import pytest

from rules.text.proxy import ProxyError, proxy_for, usable_proxy

PROXY = "http://proxy.example:3128"
DIRECT = None


@pytest.mark.parametrize(
    ("url", "no_proxy", "expected"),
    [
        pytest.param("https://api.example", "", PROXY, id="no exception"),
        pytest.param("https://localhost:6443", "", DIRECT, id="localhost"),
        pytest.param("https://127.0.0.2:6443", "", DIRECT, id="loopback IPv4"),
        pytest.param("https://[::1]:6443", "", DIRECT, id="loopback IPv6"),
        pytest.param("https://[::ffff:127.0.0.1]", "", DIRECT, id="loopback IPv4 in IPv6"),
        pytest.param("https://10.96.0.1:443", "10.96.0.0/12", DIRECT, id="in a range"),
        pytest.param("https://10.112.0.1:443", "10.96.0.0/12", PROXY, id="outside a range"),
        pytest.param("https://10.96.0.1", "10.96.0.7/12", DIRECT, id="range with host bits"),
        pytest.param("https://[fd00::1]", "fd00::/8", DIRECT, id="IPv6 range"),
        pytest.param("https://api.example", "10.96.0.0/12", PROXY, id="a name is in no range"),
        pytest.param("https://10.96.0.1", "10.96.0.0/99", PROXY, id="no range"),
        pytest.param("https://10.96.0.1:6443", "10.96.0.1", DIRECT, id="address"),
        pytest.param("https://10.96.0.1:6443", "10.96.0.1:6443", DIRECT, id="address and port"),
        pytest.param("https://10.96.0.1:6443", "10.96.0.1:443", PROXY, id="another port"),
        pytest.param("https://10.96.0.1", "10.96.0.1:443", DIRECT, id="the scheme's port"),
        pytest.param("http://10.96.0.1", "10.96.0.1:80", DIRECT, id="the scheme's port, http"),
        pytest.param("https://[fd00::1]:6443", "fd00::1", DIRECT, id="IPv6"),
        pytest.param("https://[fd00::1]:6443", "[fd00::1]:6443", DIRECT, id="IPv6 and port"),
        pytest.param("https://[fd00::1]:6443", "[fd00::1]:443", PROXY, id="IPv6, other port"),
        pytest.param("https://[fd00:0::0001]", "fd00::1", DIRECT, id="IPv6 in another form"),
        pytest.param("https://api.example", "example", DIRECT, id="subdomain"),
        pytest.param("https://example", "example", DIRECT, id="the domain itself"),
        pytest.param("https://myexample", "example", PROXY, id="only the end of a label"),
        pytest.param("https://api.example", ".example", DIRECT, id="leading dot: subdomain"),
        pytest.param("https://example", ".example", PROXY, id="leading dot: not itself"),
        pytest.param("https://api.example", "*.example", DIRECT, id="star: subdomain"),
        pytest.param("https://example", "*.example", PROXY, id="star: not itself"),
        pytest.param("https://api.example:6443", "example:6443", DIRECT, id="domain and port"),
        pytest.param("https://api.example:6443", "example:443", PROXY, id="domain, other port"),
        pytest.param("https://API.Example", "api.EXAMPLE", DIRECT, id="case of names"),
        pytest.param("https://api.example", "a.b, ,api.example", DIRECT, id="blanks in a list"),
        pytest.param("https://api.example", "a.b,*", DIRECT, id="everything"),
        pytest.param("https://10.0.0.1", "0.1", PROXY, id="an address has no domain"),
        pytest.param("https://api.example", ":443", PROXY, id="a port alone"),
        pytest.param("ftp://api.example", "", DIRECT, id="another scheme"),
    ],
)
def test_no_proxy(url: str, no_proxy: str, expected: str | None) -> None:
    environ = {"HTTPS_PROXY": PROXY, "HTTP_PROXY": PROXY, "NO_PROXY": no_proxy}
    assert proxy_for(url, environ) == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param({"https_proxy": PROXY}, PROXY, id="lower case"),
        pytest.param({"HTTPS_PROXY": PROXY, "https_proxy": "http://b"}, PROXY, id="upper wins"),
        pytest.param({"HTTPS_PROXY": "", "https_proxy": PROXY}, PROXY, id="empty is unset"),
        pytest.param({"HTTP_PROXY": PROXY}, DIRECT, id="of the other scheme"),
        pytest.param({"ALL_PROXY": PROXY}, DIRECT, id="ALL_PROXY is not read"),
        pytest.param({"HTTPS_PROXY": "proxy.example:3128"}, PROXY, id="without a scheme"),
        pytest.param({"HTTPS_PROXY": "https://u:p@b:1"}, "https://u:p@b:1", id="with a login"),
        pytest.param(
            {"HTTPS_PROXY": PROXY, "NO_PROXY": "a", "no_proxy": "*"}, PROXY, id="upper NO_PROXY"
        ),
        pytest.param({"HTTPS_PROXY": PROXY, "no_proxy": "*"}, DIRECT, id="lower no_proxy"),
    ],
)
def test_variables(environ: dict[str, str], expected: str | None) -> None:
    assert proxy_for("https://api.example:6443", environ) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("socks5://u:s3cret@proxy:1080", "socks5 is not supported", id="SOCKS"),
        pytest.param("http://u:s3cret@proxy:port", "is not a URL", id="no port"),
        pytest.param("http://u:s3cret@", "has no host", id="no host"),
    ],
)
def test_an_unusable_proxy_is_reported_without_its_credentials(text: str, message: str) -> None:
    with pytest.raises(ProxyError, match=message) as raised:
        usable_proxy(text)
    assert "s3cret" not in str(raised.value)
    with pytest.raises(ProxyError):
        proxy_for("https://api.example", {"HTTPS_PROXY": text})
    assert proxy_for("https://localhost", {"HTTPS_PROXY": text}) is None
