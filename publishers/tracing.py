"""OpenTelemetry traces from a commit, through the annotations of its transaction, to its deliveries (extra ``otel``).

The annotation ``traceparent`` is that of W3C Trace Context. It is stored with the transaction, so a trace continues wherever
and whenever the transaction is read: in process, by remote clients, after a restart.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Unpack

import msgspec
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from publishers.commits.pending import Commit
from publishers.commits.submission import Submission
from publishers.fanout.batch import Batch
from publishers.log.transaction_writer import Submitting, W

__all__ = ["LINKS_MAX", "CommitSpans", "DeliverySpans"]

LINKS_MAX: Final = 32
"""Most links from the span of a batch to commits; its attribute ``penstock.links_left_out`` counts the rest."""

_NAME: Final = "penstock"
_ANNOTATION: Final = "traceparent"
_MEMO: Final = "trace contexts"


class _Meta(msgspec.Struct):
    traceparent: str = ""


class _Annotations(msgspec.Struct):
    meta: _Meta = msgspec.field(default_factory=_Meta)


_decoder: Final = msgspec.json.Decoder(_Annotations)
_propagator: Final = TraceContextTextMapPropagator()


class CommitSpans:
    """Makes a span for each commit whose caller is inside a span: ``ChangeLog.open(path, tracer=CommitSpans())``.

    The span, ``penstock commit``, is a child of the current one, whichever way is used to write: ``commit``, ``submit``,
    columns, a sink. Its ``traceparent`` is added to the annotations, unless the caller has set one, which names the trace.
    The span ends when the commit returns, or when a submitted transaction is durable. Without a current span there is none.

    Args:
        provider: Receives the spans; the process's provider if None.
    """

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._provider = provider

    def __call__(
        self, log: str, write: Callable[..., W], changes: Iterable[Any], /, **committing: Unpack[Submitting]
    ) -> W:
        """See ``publishers.log.transaction_writer.Tracer``."""
        if not trace.get_current_span().get_span_context().is_valid:
            return write(changes, **committing)
        tracer = trace.get_tracer(_NAME, tracer_provider=self._provider)
        span = tracer.start_span(
            "penstock commit", kind=trace.SpanKind.PRODUCER, attributes={"penstock.log": log}
        )
        try:
            with trace.use_span(span):
                carrier: dict[str, str] = {}
                _propagator.inject(carrier)
                meta = committing.get("meta")
                if meta is None or isinstance(meta, Mapping):  # else the log refuses the commit
                    committing["meta"] = {**carrier, **(meta or {})}
                written = write(changes, **committing)
        except BaseException:
            span.end()
            raise
        if isinstance(written, Submission):
            written.durable.add_done_callback(partial(_ended, span))
        else:
            _committed(span, written)
        return written


def _ended(span: trace.Span, submitted: "Future[Commit]") -> None:
    error = submitted.exception()
    if error is None:
        _committed(span, submitted.result())
    else:
        span.record_exception(error)
        span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
        span.end()


def _committed(span: trace.Span, commit: Commit) -> None:
    span.set_attributes(
        {
            "penstock.version": commit.version,
            "penstock.changes": commit.changes,
            "penstock.duplicate": commit.duplicate,
        }
    )
    span.end()


class DeliverySpans:
    """Makes a span for each delivered batch that contains a transaction with ``traceparent``.

    For a batch of one such commit the span is its child, so that the trace continues; for several it is a new trace with a
    link to each of the first ``LINKS_MAX``.

    Args:
        provider: Receives the spans; the process's provider if None.
    """

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(_NAME, tracer_provider=provider)

    @contextmanager
    def around(self, batch: Batch, log: str, **attributes: str) -> Iterator[trace.Span]:
        """Makes the span current while a subscriber processes a batch; see ``on_next_batch``.

        Args:
            batch: The delivered batch.
            log: Name of its log.
            attributes: Further attributes of the span.
        """
        contexts, left_out = _contexts(batch)
        if not contexts:
            yield trace.INVALID_SPAN
            return
        attributes_of_span: dict[str, str | int] = {
            "penstock.log": log,
            "penstock.changes": len(batch),
            "penstock.to": str(batch.end),
            **attributes,
        }
        if left_out:
            attributes_of_span["penstock.links_left_out"] = left_out
        parent = (
            trace.set_span_in_context(trace.NonRecordingSpan(contexts[0])) if len(contexts) == 1 else None
        )
        links = [trace.Link(context) for context in contexts]
        with self._tracer.start_as_current_span(
            "penstock deliver",
            context=parent,
            kind=trace.SpanKind.CONSUMER,
            links=links,
            attributes=attributes_of_span,
        ) as span:
            yield span

    def sent(self, batch: Batch, log: str) -> None:
        """Records that a batch was written to a client."""
        with self.around(batch, log):
            pass


def _contexts(batch: Batch) -> tuple[Sequence[trace.SpanContext], int]:
    """Returns the trace contexts of a batch, computed once for all its subscribers, and their number beyond the bound."""
    found = batch.memo.get(_MEMO)
    if found is None:
        by_version = {part.block.version: part.block.annotations for part in reversed(batch.slices)}
        # Several transactions may belong to one span.
        parents = dict.fromkeys(
            _parent(one) for _, one in sorted(by_version.items()) if _ANNOTATION.encode() in one
        )
        contexts = [one for one in map(_context, parents) if one.is_valid]
        found = batch.memo[_MEMO] = contexts[:LINKS_MAX], max(0, len(contexts) - LINKS_MAX)
    contexts, left_out = found
    return contexts, left_out


def _parent(annotations: bytes) -> str:
    """Returns the annotation of a transaction; empty if it is not a text."""
    try:
        return _decoder.decode(annotations).meta.traceparent
    except msgspec.ValidationError:
        return ""


def _context(parent: str) -> trace.SpanContext:
    """Parses a ``traceparent``; the result is invalid if the writer's text is."""
    return trace.get_current_span(_propagator.extract({_ANNOTATION: parent})).get_span_context()
