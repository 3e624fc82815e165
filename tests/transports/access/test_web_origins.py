"""Which web pages may connect, said so that it can come true."""

import pytest

from penstock_cdc.errors import InvalidOption
from transports.access.web_origins import checked_origins
from transports.server.asgi import Application


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://example.org", "https://example.org"),
        ("https://Example.org/", "https://example.org"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://[::1]:80", "http://[::1]"),
        ("http://[::1]:443", "http://[::1]:443"),
        ("https://[2001:DB8::1]", "https://[2001:db8::1]"),
        ("https://example.org:443/", "https://example.org"),
        ("https://example.org:80", "https://example.org:80"),
        ("http://example.org:80", "http://example.org"),
        ("http://example.org:", "http://example.org"),
        ("app://penstock:443", "app://penstock:443"),
        ("app://penstock", "app://penstock"),
        ("null", "null"),
        ("*", "*"),
    ],
)
def test_an_origin_is_kept_as_browsers_tell_it(given, kept):
    assert checked_origins([given]) == {kept}


@pytest.mark.parametrize(
    "wrong",
    ["", "garbage", "example.org", "example.org:80", "//x", "https://", "https://x/path", "https://x?y", "https://u@x",
     "https://x:0", "https://x:99999", "http://a b", "http://é", "https://[::1", None, 7, b"https://x"],
)  # fmt: skip
def test_what_no_page_could_ever_be_is_refused(wrong, log):
    with pytest.raises(InvalidOption, match="the origin of a web page"):
        Application(log, origins=[wrong])


@pytest.mark.parametrize("wrong", ["https://example.org", b"x", None, 7])
def test_several_are_a_list(wrong, log):
    with pytest.raises(InvalidOption) as refused:
        Application(log, origins=wrong)
    assert refused.value.parameter == "origins"
