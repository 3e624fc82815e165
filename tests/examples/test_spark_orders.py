"""Orders from two streams, joined in Spark, on a page: paid, paid late, and not paid in time."""

import json
from datetime import datetime, timedelta

import pytest

pytest.importorskip("pyspark")

from publishers import Area, ChangeLog, Content
from tests.browser.chromium import PROGRAM, chromium
from tests.examples.programs import example

orders = example("spark_orders")


def order(number, minutes, customer=1):
    ordered = orders.NOON + timedelta(minutes=minutes)
    return {"id": number, "customer_id": customer, "total": f"{number}.00", "ordered": ordered.isoformat()}


@pytest.fixture
def few(spark):
    """The session with one partition for joins: half the files of state."""
    kept = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", kept)


def payment(number, minutes):
    paid = orders.NOON + timedelta(minutes=minutes)
    return {"order_id": number, "method": "card", "paid": paid.isoformat()}


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_page_shows_orders_as_they_are_paid_and_those_that_were_not_paid_in_time(few, tmp_path):
    """F152."""
    incoming = tmp_path / "incoming"
    with ChangeLog.open(tmp_path / "log", state=True) as log:
        query = orders.start(few, log, incoming, tmp_path / "checkpoint")
        try:

            def told(**rows):
                for name, some in rows.items():
                    orders.put(incoming / name, some)
                query.processAllAvailable()
                found = {}
                for change in log.history(None, limit=1000, content=Content.BODY).changes:
                    if change.area is Area.DATA:
                        assert change.key not in found, "each order is told once"
                        found[change.key] = (change.body["state"], change.body["name"], change.body["total"])
                return found

            paid = {"1": ("paid", "Ada", "1.00")}
            assert (
                told(orders=[order(1, 0), order(2, 1, 2), order(3, 2, 9)], payments=[payment(1, 5)]) == paid
            )
            # Time goes on by ten minutes, and a payment comes late, with a time before what was seen.
            paid["2"] = ("paid", "Blaise", "2.00")
            assert (
                told(orders=[order(4, 14)], payments=[payment(4, 14), payment(2, 4)]).items() >= paid.items()
            )
            # An hour and a quarter later nobody has paid the third order.
            settled = told(orders=[order(5, 90)], payments=[payment(5, 90)])
            assert settled["3"] == ("unpaid", None, "3.00")
            assert {key for key, (state, *_) in settled.items() if state == "paid"} == {"1", "2", "4", "5"}
            if PROGRAM is None:
                return
            with orders.serve_page(log, port=0) as server, chromium() as browser, browser.tab() as tab:
                tab.open(f"{server.home_url}orders")
                tab.until("document.querySelector('#count').value === '4 paid, 1 unpaid'")
                told(
                    orders=[order(6, 91, 3)], payments=[payment(6, 92), payment(3, 3)]
                )  # that of the third is too late
                tab.until("document.querySelector('#count').value === '5 paid, 1 unpaid'")
                newest = (
                    "[...document.querySelectorAll('tbody tr')[0].children].map(cell => cell.textContent)"
                )
                assert tab.run(newest) == ["6", "Carl, Berlin", "6.00", "card"]
                assert tab.complaints == []
        finally:
            query.stop()


class Ticks:
    """A shop that closes after so many orders; nothing waits."""

    def __init__(self, count):
        self.left = count

    def wait(self, _):
        self.left -= 1
        return self.left == 0


def rows_of(directory):
    return [
        (number, json.loads(line))
        for number, file in enumerate(sorted(directory.iterdir()), 1)
        for line in file.read_text().splitlines()
    ]


def test_the_shop_of_the_example_sells_and_tells_payments_no_later_than_the_watermark_allows(tmp_path):
    orders.sell(tmp_path, Ticks(40))
    sold = {row["id"]: datetime.fromisoformat(row["ordered"]) for _, row in rows_of(tmp_path / "orders")}
    assert list(sold) == list(range(1, 41))
    newest, late = orders.NOON, 0
    for _, row in rows_of(tmp_path / "payments"):
        paid = datetime.fromisoformat(row["paid"])
        assert timedelta(0) < paid - sold[row["order_id"]] < timedelta(hours=1)
        assert newest - paid < timedelta(minutes=15)
        late += paid < newest
        newest = max(newest, paid)
    assert late > 0
