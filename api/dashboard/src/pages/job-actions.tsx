import { useState } from "react";
import { useNavigate } from "react-router";

import { cancelJob, retryJob } from "@/api/jobs";
import { isOver, type Job } from "@/api/types";
import { useAct } from "@/lib/actions";
import { to } from "@/lib/to";
import { Button } from "@/ui/button";
import { Confirm } from "@/ui/confirm";

import { Again } from "./again";

export function JobActions({ job }: { job: Job }) {
  const [asking, setAsking] = useState<"cancel" | "again" | null>(null);
  const { act, attempt, busy } = useAct();
  const navigate = useNavigate();
  const over = isOver(job.state);
  return (
    <>
      {job.state === "failed" ? (
        <Button look="primary" icon="retry" busy={busy} disabled={job.stub} onClick={() => void act(() => retryJob(job.id), "It is back in line")}>Retry</Button>
      ) : null}
      {job.payload !== null ? (
        <Button icon="edit" onClick={() => setAsking("again")}>{job.state === "failed" ? "Retry with edits" : "Submit again"}</Button>
      ) : null}
      {over ? null : (
        <Button look="danger" icon="stop" disabled={job.cancel_requested} onClick={() => setAsking("cancel")}>
          {job.cancel_requested ? "Asked to stop" : "Cancel"}
        </Button>
      )}
      <Confirm
        open={asking === "cancel"} onClose={() => setAsking(null)} title="Cancel this job?" action={job.state === "running" ? "Ask it to stop" : "Cancel it"} danger
        run={() => attempt(() => cancelJob(job.id), job.state === "running" ? "It was asked to stop" : "It is cancelled")}
      >
        <p>{job.state === "running" ? "It runs: it is asked to stop, and ends cancelled once it has." : "It does not run. It cannot be put back in line, only submitted again."}</p>
      </Confirm>
      {asking === "again" ? <Again job={job} onClose={() => setAsking(null)} onStored={(id) => void navigate(to.job(id))} /> : null}
    </>
  );
}
