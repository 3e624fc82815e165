"""The physical plan that encodes the batches of a streaming query; Spark plans it for the first batch only.

A query hands each batch to ``foreachBatch`` as a scan of an RDD, whose attributes are the same in every batch. Spark would
analyse, optimise and plan each ``select`` on such a frame again; at 26 columns this costs a tenth of the CPU time of a batch of
20,000 rows, and more with more columns. Here the expressions of the planned filter and projection are kept, and put over the scan
of the next batch.

Only the expressions are kept: a plan would keep the shuffles and broadcasts of its batch.
"""

from functools import lru_cache
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame

from publishers.spark.inside import dataset_of, gateway_of, java_session

__all__ = ["PhysicalPlan", "scan_of"]

_PACKAGE: Final = "org.apache.spark.sql.execution."


def scan_of(frame: DataFrame) -> Any:
    """Returns the scan of a batch as Spark gives it to ``foreachBatch``; None for any other frame.

    A frame that the caller has transformed or persisted is another frame: Spark must plan it.
    """
    dataset: Any = dataset_of(frame)
    if dataset.logicalPlan().nodeName() != "LogicalRDD" or dataset.storageLevel().isValid():
        return None
    scan = dataset.queryExecution().sparkPlan()
    return scan if _class(scan) == "RDDScanExec" else None


class PhysicalPlan(NamedTuple):
    """A filter and a projection over the scan of a batch.

    Attributes:
        attributes: Attributes of the scan.
        condition: Expression of the filter.
        columns: Expressions of the projection.
        compiled: Whether Spark compiles both into one function; it does not above ``spark.sql.codegen.maxFields``.
        encoded: Empty Dataset with the projected columns.
        gateway: Gateway of the JVM.
    """

    attributes: Any
    condition: Any
    columns: Any
    compiled: bool
    encoded: Any
    gateway: Any

    @classmethod
    def of(cls, selected: DataFrame) -> "PhysicalPlan | None":
        """Returns the plan of a frame that filters and projects a scan; None if Spark has planned anything else.

        Extensions of Spark may put their own operators into a plan.
        """
        dataset: Any = dataset_of(selected)
        plan = dataset.queryExecution().executedPlan()
        compiled = _class(plan) == "WholeStageCodegenExec"
        projection = plan.child() if compiled else plan
        if (
            _class(projection) != "ProjectExec"
            or _class(filtering := projection.child()) != "FilterExec"
            or _class(scan := filtering.child()) != "RDDScanExec"
        ):
            return None
        session: Any = selected.sparkSession
        gateway = gateway_of(session.sparkContext)
        return cls(
            scan.output(),
            filtering.condition(),
            projection.projectList(),
            compiled,
            java_session(session).createDataFrame(gateway.jvm.java.util.ArrayList(), dataset.schema()),
            gateway,
        )

    def reads(self, scan: Any) -> bool:
        """Returns whether a scan has the attributes of this plan; those of another query have other ids."""
        same: bool = self.attributes.equals(scan.output())
        return same

    def record_batches(self, scan: Any) -> Any:
        """Returns the RDD of serialised record batches over a scan."""
        filtered, projected, compiled = _operators(self.gateway)
        plan = projected(self.columns, filtered(self.condition, scan))
        return self.encoded.toArrowBatchRdd(compiled(plan, 1) if self.compiled else plan)


def _class(plan: Any) -> str:
    """Returns the name of an operator's class; a class outside Spark's package has its whole name."""
    name: str = plan.getClass().getName()
    return name.removeprefix(_PACKAGE)


@lru_cache(maxsize=4)
def _operators(gateway: Any) -> tuple[Any, Any, Any]:
    """Returns the classes of operators. Cached, since a lookup costs a py4j command per part of the name."""
    found: Any = gateway.jvm.org.apache.spark.sql.execution
    return found.FilterExec, found.ProjectExec, found.WholeStageCodegenExec
