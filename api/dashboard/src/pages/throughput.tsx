import { useMemo } from "react";

import { summarize, type Statistics } from "@/api/stats";
import { Chart } from "@/ui/chart";
import { Panel, Skeleton } from "@/ui/parts";

/** Jobs a minute, in and out. */
export function Throughput({ stats, minutes }: { stats: readonly Statistics[] | undefined; minutes: number }) {
  const series = useMemo(() => (stats ? summarize(stats).series : null), [stats]);
  const lines = useMemo(
    () =>
      series === null ? [] : [
        { label: "submitted", colour: "queued", values: series.in, dashed: true },
        { label: "succeeded", colour: "succeeded", values: series.succeeded, filled: true },
        { label: "failed", colour: "failed", values: series.failed, filled: true },
        { label: "runs that raised", colour: "retrying", values: series.raised },
      ],
    [series],
  );
  const title = minutes === 60 ? "last hour" : `last ${minutes / 60} hours`;
  return (
    <Panel title="Throughput" note={title}>
      {series === null ? <Skeleton lines={5} /> : <Chart at={series.at} lines={lines} label={`Jobs a minute in the ${title}`} />}
    </Panel>
  );
}
