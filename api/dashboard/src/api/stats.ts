/** Figures of the last minutes, added up over queues. */
import type { components } from "./schema";

export type Statistics = components["schemas"]["Statistics"];

/** Percentiles in ms. */
export interface Latency {
  count: number;
  p50: number;
  p95: number;
  p99: number;
}

export interface Summary {
  /** Jobs a minute, over the last whole minutes. */
  inRate: number;
  outRate: number;
  /** Share of ended jobs that failed; null where none has ended. */
  failRate: number | null;
  failed: number;
  wait: Latency | null;
  run: Latency | null;
  series: Series;
}

export interface Series {
  /** Seconds since the epoch, as the chart wants them. */
  at: number[];
  in: number[];
  succeeded: number[];
  failed: number[];
  raised: number[];
}

/** Whole minutes that a rate is taken over: the one that runs would make it too small. */
const RATE_MINUTES = 5;

export function summarize(all: readonly Statistics[]): Summary {
  const series = addSeries(all);
  const last = (values: number[]) => mean(values.slice(-RATE_MINUTES - 1, -1));
  const sum = (name: string) => all.reduce((total, one) => total + (one.counts[name] ?? 0), 0);
  const failed = sum("failed");
  const ended = failed + sum("succeeded");
  return {
    inRate: last(series.in),
    outRate: last(series.succeeded) + last(series.failed),
    failRate: ended === 0 ? null : failed / ended,
    failed,
    wait: worst(all.map((one) => one.wait_ms)),
    run: worst(all.map((one) => one.run_ms)),
    series,
  };
}

const mean = (values: readonly number[]): number =>
  values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;

/** Percentiles of several queues cannot be added: the slowest queue is told. */
function worst(all: readonly (Latency | null)[]): Latency | null {
  const known = all.filter((one) => one !== null);
  if (known.length === 0) return null;
  return known.reduce((a, b) => ({
    count: a.count + b.count, p50: Math.max(a.p50, b.p50), p95: Math.max(a.p95, b.p95), p99: Math.max(a.p99, b.p99),
  }));
}

function addSeries(all: readonly Statistics[]): Series {
  const byTime = new Map<number, [number, number, number, number]>();
  for (const one of all) {
    for (const point of one.series) {
      const at = Math.round(Date.parse(point.at ?? "") / 1000);
      const sums = byTime.get(at) ?? [0, 0, 0, 0];
      ["enqueued", "succeeded", "failed", "raised"].forEach((name, i) => {
        sums[i]! += (point.counts[name] ?? 0) / point.minutes;
      });
      byTime.set(at, sums);
    }
  }
  const times = [...byTime.keys()].sort((a, b) => a - b);
  const column = (i: number) => times.map((at) => byTime.get(at)![i]!);
  return { at: times, in: column(0), succeeded: column(1), failed: column(2), raised: column(3) };
}
