"""The figures of a benchmark as a picture: a bar for each variant's ratio to the first one, on a logarithmic scale."""

from collections.abc import Mapping
from html import escape
from math import ceil, floor, log10
from pathlib import Path

from benchmarks.harness import Table

_WIDTH = 900
_LEFT = 330
_RIGHT = 110
_BAR = 20
_STYLE = "text{font:12px sans-serif;fill:#222}.t{font-weight:bold;font-size:13px}.l{fill:#666;font-size:11px}"


def draw(name: str, tables: Mapping[str, Table], path: Path) -> None:
    """Writes a picture in SVG."""
    parts: list[str] = []
    top = 30
    for table in tables.values():
        top = _table(table, top, parts)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{top}" viewBox="0 0 {_WIDTH} {top}">'
        f"<title>{escape(name)}</title><style>{_STYLE}</style>"
        f'<rect width="{_WIDTH}" height="{top}" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _table(table: Table, top: int, parts: list[str]) -> int:
    """Draws one comparison; returns the top of the next one."""
    ratios = [max(figure.ratio, 1e-6) for figure in table]
    low, high = floor(min(0.0, *map(log10, ratios))), ceil(max(0.0, *map(log10, ratios)))
    high = max(high, low + 1)
    scale = (_WIDTH - _LEFT - _RIGHT) / (high - low)
    parts.append(f'<text class="t" x="10" y="{top}">{escape(table.title)}, {escape(table.unit)}</text>')
    parts.append(f'<text class="l" x="10" y="{top + 15}">{escape(table.sizes)}</text>')
    top += 24
    bottom = top + _BAR * len(table)
    for power in range(low, high + 1):
        x = _LEFT + (power - low) * scale
        color = "#888" if power == 0 else "#ddd"
        parts.append(f'<path d="M{x:.1f} {top}V{bottom}" stroke="{color}"/>')
        parts.append(
            f'<text class="l" x="{x:.1f}" y="{bottom + 13}" text-anchor="middle">{10.0**power:g}x</text>'
        )
    for place, (figure, ratio) in enumerate(zip(table, ratios, strict=True)):
        y = top + place * _BAR
        end = _LEFT + (log10(ratio) - low) * scale
        start = _LEFT - low * scale
        left, width = min(start, end), max(abs(end - start), 1.5)
        color = "#0a6ebd" if "penstock" in figure.variant or "flow." in figure.variant else "#9aa5b1"
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{escape(figure.variant)}</text>')
        parts.append(
            f'<rect x="{left:.1f}" y="{y + 3}" width="{width:.1f}" height="{_BAR - 6}" fill="{color}"/>'
        )
        parts.append(
            f'<text x="{_WIDTH - _RIGHT + 8}" y="{y + 14}">{figure.rate:,.{0 if figure.rate >= 100 else 2}f}</text>'
        )
    return bottom + 46
