import subprocess
import sys
import warnings

import pytest

from publishers.spark import SparkSettingWarning, spark_session


def test_a_new_session_has_the_settings(spark):
    conf = spark.sparkContext.getConf()
    assert "-Xss4m" in conf.get("spark.driver.extraJavaOptions").split()
    assert conf.get("spark.ui.enabled") == "false"
    assert conf.get("spark.task.maxDirectResultSize") == "64m"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert spark.sparkContext.defaultParallelism == 2
    assert spark.sparkContext.pythonExec == sys.executable


def test_a_running_session_that_has_them_is_returned_without_a_word(spark):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = spark_session("another")
    assert again.sparkContext is spark.sparkContext
    assert again.sparkContext.appName == "penstock-tests"


def test_a_running_session_is_left_as_it_is_and_each_missing_setting_named(spark):
    before = spark.conf.get("spark.sql.shuffle.partitions")
    with pytest.warns(SparkSettingWarning) as told:
        spark_session("another", **{"spark.sql.shuffle.partitions": "7", "spark.executor.memory": "9g"})
    texts = [str(warning.message) for warning in told]
    assert len(texts) == 2
    assert "spark.sql.shuffle.partitions=2, not 7" in texts[0]
    assert "spark.executor.memory=None, not 9g" in texts[1]
    assert {warning.filename for warning in told} == {__file__}
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_a_session_needs_a_core():
    with pytest.raises(ValueError, match="cores is 0, but must be at least 1"):
        spark_session("none", cores=0)


@pytest.mark.parametrize("name", ["pyspark", "pyarrow"])
def test_without_the_extra_one_line_says_what_to_install(name):
    code = f"import sys; sys.modules['{name}'] = None; import publishers.spark"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: publishers.spark needs {name}: pip install 'penstock-cdc[spark]'"
    )


def test_a_release_of_spark_that_is_too_old_is_named_with_what_to_install():
    code = "import pyspark; pyspark.__version__ = '4.1.4'; import publishers.spark"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: publishers.spark needs pyspark 4.2 or newer, and this is 4.1.4: pip install 'penstock-cdc[spark]'"
    )
