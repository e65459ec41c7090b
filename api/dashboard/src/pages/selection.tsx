import { useState } from "react";

import { cancelJob, deleteJob, retryJob } from "@/api/jobs";
import { isOver, type JobRow } from "@/api/types";
import { useAct } from "@/lib/actions";
import { many } from "@/lib/format";
import { Button, IconButton } from "@/ui/button";
import { Confirm } from "@/ui/confirm";
import { toast } from "@/ui/toast";

const AT_ONCE = 6;

/** What can be done with the jobs that were selected. */
export function Selection({ rows, chosen, onDone }: { rows: readonly JobRow[]; chosen: ReadonlySet<string>; onDone: () => void }) {
  const [asking, setAsking] = useState<"cancel" | "retry" | "delete" | null>(null);
  const { refresh } = useAct();
  if (chosen.size === 0) return null;
  const its = rows.filter((row) => chosen.has(row.id));
  const live = its.filter((row) => !isOver(row.state));
  const failed = its.filter((row) => row.state === "failed");
  const over = its.filter((row) => isOver(row.state));
  const run = async () => {
    const [jobs, one, done] =
      asking === "cancel" ? ([live, cancelJob, "cancelled or asked to stop"] as const)
      : asking === "retry" ? ([failed, retryJob, "back in line"] as const)
      : ([over, deleteJob, "deleted"] as const);
    const refused = await each<JobRow>(jobs, (job) => one(job.id));
    if (jobs.length > refused) toast("good", `${many(jobs.length - refused, "job")} ${done}`);
    if (refused > 0) toast("warn", `${many(refused, "job was", "jobs were")} refused: their state has changed meanwhile`);
    onDone();
    await refresh();
  };
  return (
    <div className="selection" role="region" aria-label="Selection">
      <strong className="num">{many(chosen.size, "job")}</strong>
      <Button small icon="stop" disabled={live.length === 0} onClick={() => setAsking("cancel")}>Cancel {live.length || ""}</Button>
      <Button small icon="retry" disabled={failed.length === 0} onClick={() => setAsking("retry")}>Retry {failed.length || ""}</Button>
      <Button small icon="trash" disabled={over.length === 0} onClick={() => setAsking("delete")}>Delete {over.length || ""}</Button>
      <IconButton label="Select none" icon="close" small onClick={onDone} />
      <Confirm open={asking === "cancel"} onClose={() => setAsking(null)} title={`Cancel ${many(live.length, "job")}?`} action="Cancel them" danger run={run}>
        <p>Those that wait are cancelled at once. Those that run are asked to stop.</p>
      </Confirm>
      <Confirm open={asking === "retry"} onClose={() => setAsking(null)} title={`Retry ${many(failed.length, "job")}?`} action="Retry them" run={run}>
        <p>They go back in line with a clean count of failures.</p>
      </Confirm>
      <Confirm open={asking === "delete"} onClose={() => setAsking(null)} title={`Delete ${many(over.length, "job")}?`} action="Delete them" danger run={run}>
        <p>They are gone, with their results and histories. This cannot be undone.</p>
      </Confirm>
    </div>
  );
}

/** Does something to each, a few at a time; answers how many were refused. */
async function each<T>(all: readonly T[], what: (one: T) => Promise<unknown>): Promise<number> {
  const waiting = [...all];
  let refused = 0;
  const lane = async () => {
    for (let one = waiting.shift(); one !== undefined; one = waiting.shift()) {
      try {
        await what(one);
      } catch {
        refused += 1;
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, lane));
  return refused;
}
