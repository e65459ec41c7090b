import { useState } from "react";
import { useNavigate } from "react-router";

import { cancelJob, deleteJob, retryJob } from "@/api/jobs";
import { useMay } from "@/api/may";
import { isOver, type Job } from "@/api/types";
import { useAct } from "@/lib/actions";
import { to } from "@/lib/to";
import { Button } from "@/ui/button";
import { Confirm } from "@/ui/confirm";

import { Again } from "./again";
import { EditDialog } from "./edit-dialog";

export function JobActions({ job }: { job: Job }) {
  const [asking, setAsking] = useState<"cancel" | "again" | "edit" | "delete" | null>(null);
  const { act, attempt, busy } = useAct();
  const navigate = useNavigate();
  const over = isOver(job.state);
  const may = useMay();
  const operate = may("operate");
  return (
    <>
      {operate && job.state === "failed" ? (
        <Button look="primary" icon="retry" busy={busy} disabled={job.stub} onClick={() => void act(() => retryJob(job.id), "It is back in line")}>Retry</Button>
      ) : null}
      {may("submit") && job.payload !== null ? (
        <Button icon="edit" onClick={() => setAsking("again")}>{job.state === "failed" ? "Retry with edits" : "Submit again"}</Button>
      ) : null}
      {operate && (job.state === "queued" || job.state === "scheduled" || job.state === "retrying") ? (
        <Button icon="scheduled" onClick={() => setAsking("edit")}>{job.state === "queued" ? "Change its place" : "Run now or later"}</Button>
      ) : null}
      {!operate ? null : over ? <Button look="danger" icon="trash" disabled={job.stub} onClick={() => setAsking("delete")}>Delete</Button> : (
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
      <Confirm
        open={asking === "delete"} onClose={() => setAsking(null)} title="Delete this job?" action="Delete it" danger
        run={() => attempt(() => deleteJob(job.id), "It is deleted").then(() => navigate(to.jobs({ queue: job.queue, state: job.state })))}
      >
        <p>It is gone, with its result, history and log. This cannot be undone.</p>
      </Confirm>
      {asking === "edit" ? <EditDialog job={job} onClose={() => setAsking(null)} /> : null}
      {asking === "again" ? <Again job={job} onClose={() => setAsking(null)} onStored={(id) => void navigate(to.job(id))} /> : null}
    </>
  );
}
