"""Judges histories. It knows the promises of the log and nothing of how they are kept.

Two passes over the lines. The first gathers who committed what, when, and which transaction any witness has seen at which
version; from that follows what became of every commit. The second walks with each subscription.

========== ==========================================================================================================
rule       is broken if
========== ==========================================================================================================
LOST       a commit was acknowledged and something else, or nothing, is at its version
PHANTOM    something is seen that nobody committed, or before it was committed
TWICE      one transaction has two versions
DISAGREE   two witnesses saw different transactions at one version
TORN       a transaction has another number of changes than it was committed with, or a change is in a wrong place
ORDER      a commit that began after another had been acknowledged has a lower version
WITHHELD   a subscriber got something at or behind a withheld commit before anybody began to publish that
FORGOTTEN  something is seen that was dropped by ``forget_after``
ABOVE      a subscriber got something above what his log said to be visible
REPEATED   a subscriber got a position again, or an older one
KEY        the changes of one producer to one key came in another order than he made them
GAP        a subscriber did not get something between what he got, and was not told
FALSE GAP  he was told that something is missing which is kept
UNWANTED   a subscriber got what he had not subscribed to
DEMAND     he got more than he had requested
AFTER END  he got a signal after a terminal one, or more than what was under way after his ``cancel`` returned
START      his subscription began elsewhere than he asked
FALSE END  he was told of an end for which there was no reason
STRANDED   at rest and with demand he had not got everything that is visible
DAMAGED    a body tells of another change than the key
REFUSED    a commit that was refused is there
UNDONE     a group that was read to its end was never given a change that is kept
STATE      the compacted state has an entity that nobody could have committed, or lacks one that is kept
========== ==========================================================================================================
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.history.record import Wish, change_id, matches, parts

__all__ = ["Report", "Violation", "check"]

Line = dict[str, Any]
Place = tuple[int, int]

NEVER = 1 << 80
REFUSALS = {"ExpectationFailed", "PredecessorFailed"}
"""Errors that say for certain that nothing was written."""
EXPECTED_ENDS = {"HistoryPruned", "LogClosed", "ConnectionLost", "HISTORY_PRUNED", "LOG_CLOSED", "GOING_AWAY"}


class Violation(NamedTuple):
    """A promise that was broken."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass
class Report:
    """What was found, and how much was looked at, so that an empty history is seen to be one."""

    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def broken(self, rule: str, text: str) -> None:
        self.counts[f"broken {rule}"] += 1
        if self.counts[f"broken {rule}"] <= 20:  # one fault may show in a million places
            self.violations.append(Violation(rule, text))


@dataclass
class Ack:
    """An acknowledged commit."""

    tx: str
    version: int
    called: int
    returned: int


@dataclass
class Span:
    """A call with a version, and how it ended: never, if its process was killed in it."""

    version: int
    called: int
    returned: int = NEVER
    refused: bool = False
    unsure: bool = False


@dataclass
class Ledger:
    """What the first pass has gathered."""

    report: Report
    calls: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    sizes: dict[str, int] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    acks: list[Ack] = field(default_factory=list)
    openings: list[int] = field(default_factory=list)
    publishes: list[Span] = field(default_factory=list)
    forgets: list[Span] = field(default_factory=list)
    seen: dict[int, tuple[str, int]] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    did: set[str] = field(default_factory=set)
    grouped: set[str] | None = None
    stated: set[str] | None = None
    oldest: int = 1
    visible: int | None = None

    def gather(self, history: Iterable[Line]) -> None:
        """Reads the lines of one life of one process."""
        open_spans: dict[tuple[str, int], Span] = {}
        called: dict[str, int] = {}
        for line in history:
            event, time = line["e"], line["t"]
            if event == "commit?":
                self.calls[line["tx"]].append(time)
                called[line["tx"]] = time
                self.sizes[line["tx"]] = line["count"]
                if line.get("hidden"):
                    self.hidden.add(line["tx"])
            elif event == "commit!":
                if line["version"]:
                    self.acks.append(Ack(line["tx"], line["version"], called[line["tx"]], time))
                self.report.counts["acknowledged"] += 1
            elif event == "commit-":
                self.report.counts["refused"] += 1
                if line["error"] in REFUSALS:
                    self.refused.add(line["tx"])
            elif event == "open":
                self.openings.append(time)
            elif event in ("publish?", "forget?"):
                span = open_spans[event[:-1], line["version"]] = Span(line["version"], time)
                (self.publishes if event == "publish?" else self.forgets).append(span)
            elif event[:-1] in ("publish", "forget"):
                span = open_spans.pop((event[:-1], line["version"]))
                span.returned, span.refused = time, event[-1] == "-"
            elif event == "truth":
                self.oldest, self.visible = line["oldest"][0], line["visible"]
            else:
                self._seen(line)

    def _seen(self, line: Line) -> None:
        """What of the log anything has got: a subscriber, a fresh reader, a group, the state."""
        match line["e"]:
            case "next":
                self._witness(line["items"], line["t"])
            case "log":
                self._witness(line["items"], None)
            case "did":
                self.did.update(item[3] for item in line["items"])
                self._witness(line["items"], line["t"])
            case "drained":
                self.grouped = set(line["types"])
            case "entities":
                self.stated = (self.stated or set()).union(line["keys"])

    def _witness(self, items: Sequence[Sequence[Any]], time: int | None) -> None:
        for version, index, count, name, *_ in items:
            if time is None:
                self.kept.add(version)
            else:
                self.first[version] = min(time, self.first.get(version, time))
            if name is None:
                if index:
                    self.report.broken("TORN", f"{version}.{index} has no id")
                continue
            try:
                _, tx, place, size = parts(name)
            except ValueError:
                self.report.broken(
                    "PHANTOM", f"{version}.{index} is {name!r}, which nobody could have written"
                )
                continue
            if (index, count) != (place + 1, size + 1):
                self.report.broken("TORN", f"{version}.{index} of {count} is {name}")
            known = self.seen.setdefault(version, (tx, count))
            if known != (tx, count):
                self.report.broken("DISAGREE", f"{version} is {known} and {(tx, count)}")

    # What became of the commits.

    def judge(self) -> None:
        for times in self.calls.values():
            times.sort()
        self.openings.sort()
        for span in self.forgets:
            if span.returned == NEVER:
                # Its process was killed in it: the next one that opens the log finishes it, or it never began.
                after = bisect_left(self.openings, span.called)
                span.returned = self.openings[after] if after < len(self.openings) else NEVER
                span.unsure = True
        self._strangers()
        lasting = [ack for ack in self.acks if self._lasts(ack)]
        self._order(lasting)
        self._withheld()
        self._consumed()

    def _strangers(self) -> None:
        places: dict[str, int] = {}
        for version, (tx, count) in self.seen.items():
            if tx not in self.calls:
                self.report.broken("PHANTOM", f"{tx} at {version} was committed by nobody")
                continue
            if self.first.get(version, NEVER) < self.calls[tx][0]:
                self.report.broken("PHANTOM", f"{tx} at {version} was seen before it was committed")
            if count != self.sizes[tx] + 1:
                self.report.broken(
                    "TORN", f"{tx} at {version} has {count - 1} changes, and not {self.sizes[tx]}"
                )
            if tx in self.refused:
                self.report.broken("REFUSED", f"{tx} at {version} was refused, and is there")
            if places.setdefault(tx, version) != version:
                self.report.broken("TWICE", f"{tx} is at {places[tx]} and at {version}")
        if self.visible is not None:
            for version in range(self.oldest, self.visible + 1):
                if version not in self.kept:
                    self.report.broken("LOST", f"the log has no version {version}")
            for version in self.seen:
                if version > self.visible:
                    self.report.broken(
                        "PHANTOM", f"version {version} was seen; the log ends at {self.visible}"
                    )

    def _lasts(self, ack: Ack) -> bool:
        """Checks one acknowledgement; true if it can never have been dropped on purpose."""
        over = [
            span
            for span in self.forgets
            if span.version < ack.version and span.returned > ack.called and not span.refused
        ]
        there = self.seen.get(ack.version)
        sure = [span.called for span in over if span.called > ack.returned and not span.unsure]
        if sure:
            self.report.counts["forgotten"] += 1
            again = self.calls[ack.tx][-1] > sure[0]
            if there is not None and there[0] == ack.tx and not again:
                self.report.broken("FORGOTTEN", f"{ack.tx} at {ack.version} was dropped, and is there")
            return False
        if over:
            return False
        if there is None:
            if self.visible is not None and ack.version >= self.oldest:
                self.report.broken("LOST", f"{ack.tx} was acknowledged at {ack.version}, which is not there")
            return False
        if there[0] != ack.tx:
            self.report.broken(
                "LOST", f"{ack.tx} was acknowledged at {ack.version}, where {there[0]} is found"
            )
            return False
        return True

    def _order(self, lasting: list[Ack]) -> None:
        """Real time: who began after another had been acknowledged comes behind it."""
        returns = sorted((ack.returned, ack.version) for ack in lasting)
        highest = 0
        tops = [highest := max(highest, version) for _, version in returns]
        times = [time for time, _ in returns]
        for version, (tx, _) in self.seen.items():
            if tx not in self.calls:
                continue
            before = bisect_left(times, self.calls[tx][0])
            if before and tops[before - 1] > version:
                self.report.broken(
                    "ORDER", f"{tx} at {version} began after {tops[before - 1]} had been acknowledged"
                )

    def _withheld(self) -> None:
        """Whatever lies at or behind a withheld commit is seen after somebody began to publish that."""
        released = 0
        for version in sorted(self.seen):
            tx = self.seen[version][0]
            if tx in self.hidden and tx in self.calls:
                began = self.calls[tx][0]
                times = [
                    span.called
                    for span in self.publishes
                    if span.version >= version and span.called > began and not span.refused
                ]
                released = max(released, min(times, default=NEVER))
                self.report.counts["withheld"] += 1
            if self.first.get(version, NEVER) < released:
                self.report.broken("WITHHELD", f"{tx} at {version} was delivered before it was published")

    def _consumed(self) -> None:
        """What consumers of the log have at the end is what is kept: the group, and the state."""
        if self.grouped is None and self.stated is None:
            return
        names = {
            change_id(tx, place, count - 1): tx.partition("/")[0]
            for tx, count in map(self.seen.__getitem__, self.kept & self.seen.keys())
            for place in range(count - 1)
        }
        if self.grouped is not None:
            self.report.counts["given to a group"] += len(self.did)
            for name, producer in names.items():
                if producer in self.grouped and name not in self.did:
                    self.report.broken("UNDONE", f"{name} was never given to the group")
        if self.stated is not None:
            self.report.counts["entities"] += len(self.stated)
            for name in names.keys() - self.stated:
                self.report.broken("STATE", f"{name} is in the log, and not in the state")
            if self.oldest == 1:
                for name in self.stated - names.keys():
                    self.report.broken("STATE", f"{name} is in the state, and not in the log")

    # What a subscriber is due.

    def missing(self, wish: Wish, start: Place, end: Place) -> Iterator[Place]:
        """The places from ``start`` to before ``end`` that match, as far as it is known what is there."""
        version, first = start
        while (version, first) < end:
            known = self.seen.get(version)
            last = end[1] if version == end[0] else None
            if wish[0] in ("all", "infra") and first == 0 and (last is None or last > 0):
                yield version, 0
            if known is None:
                self.report.counts["versions that nobody knows"] += wish[0] != "infra"
            elif wish[0] != "infra":
                tx, count = known
                for index in range(max(first, 1), count if last is None else min(last, count)):
                    if matches(wish, index, change_id(tx, index - 1, count - 1)):
                        yield version, index
            version, first = version + 1, 0


class Follower:
    """Walks with one subscription."""

    def __init__(self, name: str, line: Line, ledger: Ledger) -> None:
        self.name = name
        self.ledger = ledger
        self.report = ledger.report
        self.wish: Wish = line["wish"]
        since = line.get("since")
        self.since: Place | None = None if since is None else (since[0], since[1])
        self.next = self.since
        self.asked = self.got = 0
        self.seeks: list[Place] = []
        self.cancelled = False
        self.late = 0
        self.ended = False
        self.orders: dict[tuple[str, str], tuple[int, int]] = {}
        self.report.counts["subscriptions"] += 1

    def broken(self, rule: str, text: str) -> None:
        self.report.broken(rule, f"{self.name}: {text}")

    def on(self, line: Line) -> None:
        """The next line that names this subscription."""
        event = line["e"]
        if event in ("next", "gap", "sought", "end", "started"):
            if self.ended:
                self.broken("AFTER END", f"{event} came after the terminal signal")
            if self.cancelled:
                self.late += 1
                if self.late > 1:  # one signal may have been under way
                    self.broken("AFTER END", f"{event} came after cancel")
        call = getattr(self, f"_{event}", None)
        if call is not None:
            call(line)

    def pass_on(self, other: "Follower") -> None:
        """Another one goes on where this one says that it stood."""
        if other.since is not None:
            self.report.counts["resumed"] += 1
            self._pass_over(other.since, "GAP", f"where {other.name} resumed")

    def _started(self, line: Line) -> None:
        if line["at"] is None:
            return
        at = (line["at"][0], line["at"][1])
        if self.since is None:
            self.next = at
        elif at < self.since:  # further on it may be, if a gap is told before anything is delivered
            self.broken("START", f"asked for {self.since}, began at {at}")

    def _request(self, line: Line) -> None:
        self.asked += line["n"]

    def _next(self, line: Line) -> None:
        items = line["items"]
        self.got += len(items)
        self.report.counts["delivered"] += len(items)
        if self.got > self.asked:
            self.broken("DEMAND", f"{self.got} came, {self.asked} were requested")
        visible = line.get("visible")
        for version, index, count, name, text in items:
            if visible is not None and version > visible:
                self.broken("ABOVE", f"{version}.{index} came when {visible} was visible")
            if text is not None and text != name:
                self.broken("DAMAGED", f"the body of {name} at {version}.{index} is that of {text}")
            if not matches(self.wish, index, name):
                self.broken("UNWANTED", f"{version}.{index} ({name}) does not match {self.wish}")
            self._step((version, index), count)
            if name is not None:
                self._key(name)

    def _step(self, place: Place, count: int) -> None:
        if self.next is not None:
            if place < self.next:
                self.broken("REPEATED", f"{place} came where {self.next} was next")
                return
            self._pass_over(place, "GAP", f"before {place}")
        # Where the transaction ends need not be asked from others.
        self.next = (place[0] + 1, 0) if place[1] + 1 == count else (place[0], place[1] + 1)

    def _pass_over(self, end: Place, rule: str, where: str) -> None:
        if self.next is not None and self.next < end:
            lacking = next(self.ledger.missing(self.wish, self.next, end), None)
            if lacking is not None:
                self.broken(rule, f"{lacking} is missing {where}")

    def _key(self, name: str) -> None:
        try:
            key, tx, place, _ = parts(name)
        except ValueError:
            return  # named already
        producer, _, sequence = tx.partition("/")
        now = int(sequence), place
        if self.orders.get((key, producer), (-1, 0)) >= now:
            self.broken("KEY", f"{name} came after {self.orders[key, producer]}")
        self.orders[key, producer] = now

    def _gap(self, line: Line) -> None:
        begin, end = tuple(line["begin"]), tuple(line["end"])
        self.report.counts["told gaps"] += 1
        self._pass_over(begin, "GAP", f"before the told gap from {begin}")
        if self.ledger.visible is not None and end[0] > self.ledger.oldest:
            self.broken("FALSE GAP", f"up to {end}; the log keeps everything from {self.ledger.oldest} on")
        self.next = end if self.next is None else max(self.next, end)

    def _seek(self, line: Line) -> None:
        self.seeks.append((line["to"][0], line["to"][1]))

    def _sought(self, line: Line) -> None:
        to = (line["to"][0], line["to"][1])
        self.report.counts["seeks"] += 1
        if to not in self.seeks:
            self.broken("START", f"it went to {to}, and was asked to go to {self.seeks[-3:]}")
        self.next = to
        self.orders.clear()

    def _cancelled(self, _line: Line) -> None:
        self.cancelled = True

    def _end(self, line: Line) -> None:
        self.ended = True
        error, oldest = line["error"], line.get("oldest")
        self.report.counts[f"ended with {error}"] += 1
        if error is not None and error not in EXPECTED_ENDS:
            self.broken("FALSE END", f"{error}")
        if oldest is not None:
            kept = self.ledger.visible is not None and oldest[0] > self.ledger.oldest
            if kept or (self.next is not None and tuple(oldest) <= self.next):
                self.broken(
                    "FALSE END", f"{error}, the oldest being {oldest}, where {self.next} was to be read"
                )

    def _rest(self, line: Line) -> None:
        self.report.counts["at rest"] += 1
        if self.next is not None and not self.ended:
            self._pass_over((line["visible"] + 1, 0), "STRANDED", f"at rest; {line['visible']} is visible")


def check(histories: Sequence[Iterable[Line]]) -> Report:
    """Judges the histories of all lives of all processes over one log; each must be one that can be read twice."""
    report = Report()
    ledger = Ledger(report)
    for history in histories:
        ledger.gather(history)
    ledger.judge()
    report.counts["versions seen"] = len(ledger.seen)
    report.counts["commits"] = sum(map(len, ledger.calls.values()))
    followers: dict[str, Follower] = {}
    heirs: list[tuple[Follower, Follower]] = []
    for history in histories:
        for line in history:
            if line["e"] == "subscribe":
                follower = followers[line["sub"]] = Follower(line["sub"], line, ledger)
                if (before := followers.get(line.get("after"))) is not None:
                    heirs.append((before, follower))
            elif (name := line.get("sub")) is not None:
                followers[name].on(line)
    for (
        before,
        follower,
    ) in heirs:  # last, because a signal that was under way may have come after the next began
        before.pass_on(follower)
    return report
