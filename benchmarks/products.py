"""What a decision and an update cost by the rule of every row of the table."""

from benchmarks.pool import SIZES, measured, spread
from benchmarks.table import Row
from scheduler_core.products.table import PRODUCTS, Product

_SAMPLES = 3_000


def rows() -> list[Row]:
    """Measure, and say how it compares with the goals. Takes about three minutes."""
    return [_row(row) for row in PRODUCTS]


def _row(row: Product) -> Row:
    """One line for a product: the worst of the sizes, and their spread."""
    timings = [measured(nodes, row, _SAMPLES) for nodes in SIZES]
    p50 = max(timing.decision(0.5) for timing in timings)
    p99 = max(timing.decision(0.99) for timing in timings)
    update = max(timing.update(0.5) for timing in timings)
    update_p99 = max(timing.update(0.99) for timing in timings)
    ratio = spread(timings)
    return Row(
        figure=f"{row.key}: decision, worst of {', '.join(f'{n:,}' for n in SIZES)}",
        goal="p50 ≤ 5 µs, p99 ≤ 20 µs, sizes within 1.3",
        value=(
            f"p50 {p50:.1f} µs, p99 {p99:.1f} µs, sizes within {ratio:.2f}; "
            f"update p50 {update:.1f} µs, p99 {update_p99:.0f} µs"
        ),
        passed=p50 <= 5 and p99 <= 20 and ratio <= 1.3,
    )
