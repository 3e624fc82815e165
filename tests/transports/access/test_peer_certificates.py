"""Who a client is by its certificate, and by several things at once."""

import pytest

from publishers.errors import InvalidOption
from tests.transports.principals import knowing
from transports import AnyOf, Credentials, PeerCertificate, PeerCertificates, Principal
from transports.access.peer_certificates import peer_certificate

SHOWN = PeerCertificate("CN=billing,O=Shop", "billing", ("DNS:billing.internal",), 7.0)


@pytest.mark.parametrize(
    ("told", "subject", "common"),
    [
        ([[("organizationName", "Shop")], [("commonName", "billing")]], "CN=billing,O=Shop", "billing"),
        ([[("commonName", "a,b+c")]], "CN=a\\,b\\+c", "a,b+c"),
        ([[("commonName", " #x ")]], "CN=\\ #x\\ ", " #x "),
        ([[("commonName", "#"), ("userId", "7")]], "CN=\\#+UID=7", "#"),
        ([[("commonName", " ")]], "CN=\\ ", " "),
        ([[("title", "x\0y")]], "title=x\\00y", None),
    ],
)
def test_a_subject_is_written_so_that_no_other_one_reads_the_same(told, subject, common):
    """F98: RFC 4514; a comma in a name begins no other part."""
    found = peer_certificate({"subject": told, "subjectAltName": [("DNS", "x")]}, 5.0)
    assert found == PeerCertificate(subject, common, ("DNS:x",), 5.0)
    assert peer_certificate({}, None) is None


def test_a_certificate_is_a_principal_by_its_name():
    """F98."""
    given = Credentials(peer_certificate=SHOWN)
    claims = {"subject": SHOWN.subject, "alternative_names": SHOWN.alternative_names}
    assert PeerCertificates()(given) == Principal("billing", (), claims, 7.0)
    named = PeerCertificates(name="subject", allowed=[SHOWN.subject], roles={SHOWN.subject: ["writer"]})
    assert named(given) == Principal(SHOWN.subject, {"writer"}, claims, 7.0)
    assert PeerCertificates(allowed=["other"])(given) is None
    assert PeerCertificates()(Credentials("a token")) is None
    assert PeerCertificates()(Credentials(peer_certificate=PeerCertificate("O=Shop"))) is None


@pytest.mark.parametrize(
    ("given", "says"),
    [({"name": "cn"}, "one of subject, common_name"), ({"allowed": "billing"}, "a list of")],
)
def test_what_is_no_right_option_is_refused_in_words(given, says):
    """F98."""
    with pytest.raises(InvalidOption, match=says):
        PeerCertificates(**given)


async def test_the_first_authenticator_that_knows_a_client_tells_who_it_is():
    """F140: and all of them are looked at again."""

    class Known:
        quick = True
        revision = 2

        def __init__(self, name):
            self.know = knowing(name)
            self.looked = 0

        def __call__(self, credentials):
            return self.know(credentials)

        def refresh(self):
            self.looked += 1

    class Awaiting(Known):
        async def __call__(self, credentials):
            return Principal("awaited") if credentials.token == "late" else None

    one, two = Known("ann"), Awaiting("x")
    both = AnyOf(one, two, PeerCertificates())
    assert (await both(Credentials("ann"))).name == "ann"
    assert (await both(Credentials("late"))).name == "awaited"
    assert (await both(Credentials("bob", peer_certificate=SHOWN))).name == "billing"
    assert await both(Credentials("bob")) is None
    assert both.revision == 4
    both.refresh()
    assert (one.looked, two.looked) == (1, 1)
    with pytest.raises(InvalidOption, match="whose attribute quick is true"):
        AnyOf(knowing())
