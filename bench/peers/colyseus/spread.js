// One figure from the ticks of a run, as in harness/src/spread.rs: the mean leaves out the slowest hundredth of the ticks.

const TICKS_PER_DISCARDED = 100;

/// `values` must not be empty.
export function spread(values) {
    const sorted = [...values].sort((a, b) => a - b);
    const count = sorted.length;
    const discarded = Math.min(Math.ceil(count / TICKS_PER_DISCARDED), count - 1);
    const kept = sorted.slice(0, count - discarded);
    return {
        mean: kept.reduce((sum, value) => sum + value, 0) / kept.length,
        median: (sorted[(count - 1) >> 1] + sorted[count >> 1]) / 2,
        p99: kept[kept.length - 1],
        min: sorted[0],
        max: sorted[count - 1],
    };
}
