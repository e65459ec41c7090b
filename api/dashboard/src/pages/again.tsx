import { useId, useState } from "react";

import { ApiError } from "@/api/client";
import { submitJob, type Submission } from "@/api/jobs";
import type { Job } from "@/api/types";
import { useAct } from "@/lib/actions";
import { randomId } from "@/lib/id";
import { pretty, problemOf } from "@/lib/raw";
import { Button } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { Notice } from "@/ui/parts";
import { toast } from "@/ui/toast";

/**
 * Submits a job's payload again, as a new job, with what was changed in it. The payload is text from
 * the answer of the API to the body of the request: its integers stay as they are.
 */
export function Again({ job, onClose, onStored }: { job: Job; onClose: () => void; onStored: (id: string) => void }) {
  const given = job.payload ?? "{}";
  const [shown] = useState(() => pretty(given));
  const [text, setText] = useState(shown);
  const [priority, setPriority] = useState(String(job.priority));
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  // One for each opening: a second click, or a repeat after a lost answer, makes no second job.
  const [key] = useState(randomId);
  const { refresh } = useAct();
  const id = useId();
  const wrong = problemOf(text);
  const number = Number(priority);
  const badPriority = priority.trim() === "" || !Number.isInteger(number) || number < -100 || number > 100;

  const submit = async () => {
    setBusy(true);
    setError(null);
    try {
      const wanted: Submission = {
        job_type: job.job_type, queue: job.queue, payload: text === shown ? given : text, priority: number,
        max_attempts: job.max_attempts ?? undefined, timeout: job.timeout ?? undefined,
      };
      const stored = await submitJob(wanted, `${key}:${digest(text)}:${number}`);
      toast("good", "A new job is stored");
      onClose();
      onStored(stored.id);
      await refresh();
    } catch (refused) {
      setError(refused instanceof ApiError ? refused.message : String(refused));
      setBusy(false);
    }
  };
  return (
    <Dialog
      open onClose={onClose} title={job.state === "failed" ? "Retry with edits" : "Submit again"} wide
      foot={
        <>
          <Button onClick={onClose}>Keep as it is</Button>
          <Button look="primary" busy={busy} disabled={wrong !== null || badPriority} onClick={() => void submit()}>Submit as a new job</Button>
        </>
      }
    >
      <p className="muted">A new <code>{job.job_type}</code> in <code>{job.queue}</code>. This one stays as it is.</p>
      <div className="field">
        <label htmlFor={`${id}-text`}>Payload</label>
        <textarea
          id={`${id}-text`} className="input" rows={Math.min(22, Math.max(6, text.split("\n").length + 1))} value={text} spellCheck={false}
          aria-invalid={wrong !== null} aria-describedby={`${id}-hint`} onChange={(event) => setText(event.target.value)}
        />
        <span id={`${id}-hint`} className="hint">
          {wrong === null ? "JSON, sent as it stands here: numbers of any length stay exact." : <span className="wrong">Not JSON: {wrong}</span>}
        </span>
      </div>
      <div className="field narrow">
        <label htmlFor={`${id}-priority`}>Priority</label>
        <input id={`${id}-priority`} className="input num" inputMode="numeric" value={priority} aria-invalid={badPriority} onChange={(event) => setPriority(event.target.value)} />
        <span className="hint">-100 to 100, higher is sooner.</span>
      </div>
      {error === null ? null : <Notice tone="bad" title="It was not stored">{error}</Notice>}
    </Dialog>
  );
}

/** A short mark of a text, so that another body is not taken for a repeat. */
function digest(text: string): string {
  let hash = 5381;
  for (let i = 0; i < text.length; i += 1) hash = (hash * 33 + text.charCodeAt(i)) | 0;
  return (hash >>> 0).toString(36);
}
