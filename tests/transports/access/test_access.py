"""Who is let in, and what each may do, asked of the one object that knows."""

import asyncio
import threading

import pytest

from publishers.errors import InvalidOption, LogReadOnly
from tests.transports.principals import knowing
from transports import ANONYMOUS, Access, Credentials, Forbidden, Grant, LogAction, Principal, Unauthenticated
from transports.errors import LogNotFound, NotAuthenticated

ANN = Principal("ann", {"reader"}, {"tenant": "a"}, expires=100.0)


class At:
    """A clock that stands."""

    def __init__(self, seconds):
        self.seconds = seconds

    def monotonic(self):
        return self.seconds

    def now_us(self):
        return int(self.seconds * 1_000_000)


async def test_without_an_authenticator_all_are_anonymous_whatever_they_claim():
    """E62."""
    access = Access()
    assert access.open
    assert await access.principal(Credentials("claimed")) is ANONYMOUS


@pytest.mark.parametrize("expires", [None, 99.0, 100.0, 101.0])
async def test_a_connection_goes_on_as_the_principal_that_it_began_as_and_no_longer_than_that_lasts(expires):
    """E62: the authenticator is asked again, and may know the same credentials by another name by now."""
    names = ["ann", "ann", "bob"]
    access = Access(lambda _: Principal(names.pop(0), expires=expires), clock=At(100.0))
    if expires is not None and expires <= 100.0:
        with pytest.raises(Unauthenticated):
            await access.principal(Credentials("t"))
        return
    ann = await access.principal(Credentials("t"))
    assert (await access.again(ann, Credentials("t"), since=0.0, revision=access.revision - 1)).name == "ann"
    with pytest.raises(Unauthenticated):
        await access.again(ann, Credentials("t"), since=0.0, revision=access.revision - 1)


class Leaping(At):
    """A clock whose wall time leaps."""

    leap = 0.0

    def now_us(self):
        return int((self.seconds + self.leap) * 1_000_000)


@pytest.mark.parametrize("leap", [0.0, 7200.0, 8 * 86400.0, -7200.0, -99.0])
async def test_what_a_principal_has_left_of_its_life_is_measured_by_the_monotonic_clock(leap):
    """E62: a wall clock that is set back prolongs no token, and one that leaps ahead ends no connection."""
    clock = Leaping(100.0)
    access = Access(lambda _: Principal("ann", expires=160.0), Grant({LogAction.READ}), clock=clock)
    ann = await access.principal(Credentials("t"))
    assert ann == Principal("ann", expires=160.0)
    clock.leap = leap
    for clock.seconds, over in ((159.0, False), (160.0, True)):
        assert access.expired(ann) is over
        if over:
            with pytest.raises(Unauthenticated):
                access.grant(ann, "log", LogAction.READ)
        else:
            access.grant(ann, "log", LogAction.READ)
    if leap > 0:  # whoever comes anew is judged by the wall clock, as there is no other
        with pytest.raises(Unauthenticated):
            await access.principal(Credentials("t"))


async def test_a_principal_comes_from_a_quick_a_blocking_or_an_awaiting_authenticator():
    """E62: a blocking one never holds the event loop."""
    threads = []

    class Quick:
        quick = True

        def __call__(self, credentials):
            threads.append(threading.current_thread())
            return Principal(credentials.token)

    class Awaiting:
        async def __call__(self, credentials):
            threads.append(threading.current_thread())
            return Principal(credentials.token)

    async def awaiting(credentials):
        return await Awaiting()(credentials)

    def blocking(credentials):
        threads.append(threading.current_thread())
        return Principal(credentials.token)

    def returning(credentials):
        return awaiting(credentials)

    for authenticate in (Quick(), Awaiting(), awaiting, returning, blocking):
        assert (await Access(authenticate).principal(Credentials("ann"))).name == "ann"
    here = threading.current_thread()
    assert [one is here for one in threads] == [True, True, True, True, False]


async def test_who_is_refused_expired_or_not_judged_in_time_is_told_apart():
    """E62."""

    async def never(_credentials):
        await asyncio.Event().wait()

    def refusing(_credentials):
        raise Forbidden("token", "one of ours")

    for authenticate in (knowing("bob"), refusing, lambda _: ANN):
        with pytest.raises(Unauthenticated, match="missing, wrong or expired"):
            await Access(authenticate, clock=At(100.0)).principal(Credentials("ann"))
    assert await Access(lambda _: ANN, clock=At(99.9)).principal(Credentials()) == ANN
    with pytest.raises(NotAuthenticated, match=r"within 0\.01 s") as caught:
        await Access(never, timeout=0.01).principal(Credentials())
    assert caught.value.retryable


@pytest.mark.parametrize("answer", [True, False, "ann", {"name": "ann"}])
async def test_an_authenticator_of_the_old_kind_lets_nobody_in(answer):
    """E62: True is no principal; rather an error than everybody."""
    with pytest.raises(TypeError, match="answers with a Principal or None, not with"):
        await Access(lambda _: answer).principal(Credentials("x"))


def test_without_an_authoriser_all_may_read_and_operate_and_nobody_may_write():
    """F140: a server is never writable by accident."""
    access = Access()
    assert access.uniform
    for action in (LogAction.READ, LogAction.OPERATE):
        assert access.grant(ANONYMOUS, "shop", action).view is None
    with pytest.raises(Forbidden, match="which is OPERATE, READ; for WRITE the authoriser"):
        access.grant(ANONYMOUS, "shop", LogAction.WRITE)
    with pytest.raises(Forbidden, match="which is nothing; for READ"):
        Access(authorise=Grant(frozenset())).grant(ANONYMOUS, "shop", LogAction.READ)


def test_an_authoriser_is_asked_with_principal_log_and_action():
    """F140."""
    asked = []

    def authorise(*given):
        asked.append(given)
        return Grant({LogAction.WRITE})

    access = Access(authorise=authorise, clock=At(99.0))
    assert access.grant(ANN, "shop", LogAction.WRITE) == Grant({LogAction.WRITE})
    assert access.allows(ANN, "shop", LogAction.READ) is None
    assert asked == [(ANN, "shop", LogAction.WRITE), (ANN, "shop", LogAction.READ)]
    with pytest.raises(TypeError, match="an authoriser answers with a Grant, not with NoneType"):
        Access(authorise=lambda *_: None).grant(ANONYMOUS, "shop", LogAction.READ)


def test_a_principal_whose_time_is_over_may_do_nothing_more():
    """F140."""
    access = Access(clock=At(100.0))
    assert access.allows(ANN, "shop", LogAction.READ) is None
    with pytest.raises(Unauthenticated):
        access.grant(ANN, "shop", LogAction.READ)


class Followed:
    read_only = True


@pytest.mark.parametrize("stored", [False, True])
def test_slots_of_a_followed_log_are_shown_or_refused_to_those_who_may_know_the_log(stored):
    """F86: nobody else learns that there is a log, nor that it is followed."""
    grants = {"mine": Grant({LogAction.READ, LogAction.OPERATE}), "fed": Grant({LogAction.CONSUME})}
    access = Access(authorise=lambda _principal, log, _action: grants.get(log, Grant(())))
    logs = {name: Followed() for name in ("mine", "fed", "secret")}
    assert access.find(logs, "fed", ANONYMOUS, LogAction.CONSUME, stored=stored)[2] == grants["fed"]
    said = []
    for name in ("secret", "nothing"):
        with pytest.raises(Forbidden) as caught:
            access.find(logs, name, ANONYMOUS, LogAction.CONSUME, stored=stored)
        said.append(str(caught.value))
    assert said[0] == said[1]
    with pytest.raises(LogNotFound) as missing:
        access.find(logs, None, ANONYMOUS, LogAction.CONSUME, stored=stored)
    if stored:
        assert access.find(logs, "mine", ANONYMOUS, LogAction.CONSUME, stored=True)[2] == grants["mine"]
        assert str(missing.value).endswith("one of: fed, mine")
        return
    assert str(missing.value).endswith("one of: fed")
    with pytest.raises(LogReadOnly, match="belong to its owner"):
        access.find(logs, "mine", ANONYMOUS, LogAction.CONSUME)


def test_nobody_learns_whether_there_is_a_log_that_is_not_for_him():
    """F140: a name is judged before it is looked up; what is allowed is told by name."""

    def authorise(principal, log, _action):
        return Grant() if log in ("mine", "also-mine", "typo") else Grant(frozenset())

    logs = {"mine": 1, "also-mine": 2, "secret": 3}
    access = Access(authorise=authorise)
    assert access.find(logs, "mine", ANONYMOUS) == ("mine", 1, Grant())
    for name in ("secret", "no-such-log"):
        with pytest.raises(Forbidden):
            access.find(logs, name, ANONYMOUS)
    for name in ("typo", None, "x" * 256):
        with pytest.raises(LogNotFound, match=r"one of: also-mine, mine$"):
            access.find(logs, name, ANONYMOUS)
    assert access.find({"mine": 1}, None, ANONYMOUS)[0] == "mine"
    with pytest.raises(Forbidden):
        access.find({"secret": 3}, None, ANONYMOUS)


@pytest.mark.parametrize(
    ("given", "says"), [({"authenticate": "me"}, "a callable that makes"), ({"authorise": 1}, "a Grant, or")]
)
def test_what_cannot_judge_is_refused_when_it_is_given(given, says):
    """F140."""
    with pytest.raises(InvalidOption, match=says):
        Access(**given)


async def test_what_was_read_is_looked_at_again_before_a_client_is_judged_by_it():
    """F140: over HTTP there may be no connection that lasts; all who come at once wait for one look."""

    class Kept:
        quick = True
        looked = 0
        known = "ann"
        broken = False

        def __call__(self, credentials):
            return Principal(self.known)

        def refresh(self):
            self.looked += 1
            if self.broken:
                raise OSError("no file")
            self.known = f"ann {self.looked}"

    kept, clock = Kept(), At(0.0)
    access = Access(kept, fresh=5.0, clock=clock)
    found = await asyncio.gather(*(access.principal(Credentials()) for _ in range(3)))
    assert [one.name for one in found] == ["ann 1"] * 3
    clock.seconds = 4.9
    assert (await access.principal(Credentials())).name == "ann 1"
    clock.seconds = 5.0
    assert (await access.principal(Credentials())).name == "ann 2"
    clock.seconds, kept.broken = 10.0, True
    assert (await access.principal(Credentials())).name == "ann 2"
    assert kept.looked == 3
