import pytest

pytest.importorskip("pyspark")

from tests.examples.programs import example

departures = example("rx_departures")

PRINTED = """\
UA +2.0 min over 1 | AA -1.0 min over 1 | UA +3.0 min over 2
AA +15.0 min over 2 | UA +2.0 min over 3 | B6 +12.0 min over 1
B6 +30.0 min over 2 | AA +10.0 min over 3 | UA +7.5 min over 4
10 departures in 3 micro-batches
"""


def test_the_example_prints_the_running_means_and_leaves_nothing_behind(spark, tmp_path, monkeypatch, capsys):
    stopped = []
    monkeypatch.setattr(departures, "spark_session", lambda name, **conf: spark)
    monkeypatch.setattr(spark, "stop", lambda: stopped.append(spark))  # other tests take the same session
    departures.main(tmp_path)
    assert capsys.readouterr().out == PRINTED
    assert stopped == [spark]
