import { useId, useState } from "react";

import { ApiError } from "@/api/client";
import { editJob } from "@/api/jobs";
import type { Job } from "@/api/types";
import { useAct } from "@/lib/actions";
import { Button } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { At, Notice } from "@/ui/parts";

/** Changes when a waiting job may run, and its priority. */
export function EditDialog({ job, onClose }: { job: Job; onClose: () => void }) {
  const [priority, setPriority] = useState(String(job.priority));
  const [when, setWhen] = useState<"keep" | "now" | "delay">("keep");
  const [delay, setDelay] = useState("60");
  const [error, setError] = useState<string | null>(null);
  const { attempt, busy } = useAct();
  const id = useId();
  const badPriority = !/^-?\d{1,3}$/.test(priority.trim()) || Math.abs(Number(priority)) > 100;
  const badDelay = when === "delay" && !/^\d+(\.\d+)?$/.test(delay.trim());
  const changes = {
    ...(Number(priority) === job.priority ? {} : { priority: Number(priority) }),
    ...(when === "now" ? { delay: 0 } : when === "delay" ? { delay: Number(delay) } : {}),
  };
  const save = async () => {
    setError(null);
    try {
      await attempt(() => editJob(job, changes), "The job is changed");
      onClose();
    } catch (refused) {
      setError(refused instanceof ApiError ? refused.message : String(refused));
    }
  };
  return (
    <Dialog
      open onClose={onClose} title={`Change ${job.job_type}`}
      foot={
        <>
          <Button onClick={onClose}>Keep as it is</Button>
          <Button look="primary" busy={busy} disabled={badPriority || badDelay || Object.keys(changes).length === 0} onClick={() => void save()}>Change it</Button>
        </>
      }
    >
      <div className="field narrow">
        <label htmlFor={`${id}-priority`}>Priority</label>
        <input id={`${id}-priority`} className="input num" inputMode="numeric" value={priority} aria-invalid={badPriority} onChange={(event) => setPriority(event.target.value)} />
        <span className="hint">-100 to 100, higher is sooner.</span>
      </div>
      <div className="field narrow">
        <label htmlFor={`${id}-when`}>It may run</label>
        <select id={`${id}-when`} className="input" value={when} onChange={(event) => setWhen(event.target.value as typeof when)}>
          <option value="keep">as it is</option>
          <option value="now">now</option>
          <option value="delay">after some seconds</option>
        </select>
        <span className="hint">As it is: from <At at={job.eligible_at} />.</span>
      </div>
      {when === "delay" ? (
        <div className="field narrow">
          <label htmlFor={`${id}-delay`}>Seconds from now</label>
          <input id={`${id}-delay`} className="input num" inputMode="decimal" value={delay} aria-invalid={badDelay} onChange={(event) => setDelay(event.target.value)} />
        </div>
      ) : null}
      <p className="muted">If it starts meanwhile, it is left alone.</p>
      {error === null ? null : <Notice tone="bad" title="It was refused">{error}</Notice>}
    </Dialog>
  );
}
