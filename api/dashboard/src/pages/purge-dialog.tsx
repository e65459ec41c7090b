import { useId, useRef, useState } from "react";

import { ApiError, path, send } from "@/api/client";
import type { Queue } from "@/api/types";
import { useAct } from "@/lib/actions";
import { count, many } from "@/lib/format";
import { Button } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { Notice } from "@/ui/parts";
import { toast } from "@/ui/toast";

const WHAT = ["waiting", "queued", "scheduled", "retrying", "failed", "succeeded", "cancelled"] as const;
type What = (typeof WHAT)[number];

interface Purged {
  removed: number;
  next_cursor: string | null;
}

const size = (queue: Queue, what: What): number =>
  (what === "waiting" ? (["queued", "scheduled", "retrying"] as const) : [what]).reduce((sum, state) => sum + (queue.counts[state] ?? 0), 0);

/** Takes jobs out of a queue, page by page, once its name has been typed. */
export function PurgeDialog({ queue, onClose }: { queue: Queue; onClose: () => void }) {
  const [what, setWhat] = useState<What>("waiting");
  const [typed, setTyped] = useState("");
  const [removed, setRemoved] = useState<number | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const stopped = useRef(false);
  const id = useId();
  const { refresh } = useAct();
  const ended = what === "failed" || what === "succeeded" || what === "cancelled";

  const run = async () => {
    setBusy(true);
    setError(null);
    stopped.current = false;
    let all = 0;
    let cursor: string | null = null;
    try {
      do {
        const page: Purged = await send("POST", path`/queues/${queue.name}/purge`, { what, ...(cursor === null ? {} : { cursor }) });
        all += page.removed;
        cursor = page.next_cursor;
        setRemoved(all);
      } while (cursor !== null && !stopped.current);
      toast("good", `${many(all, "job")} ${ended ? "deleted" : "cancelled"} in ${queue.name}`);
      onClose();
    } catch (refused) {
      setError(refused instanceof ApiError ? refused.message : String(refused));
    } finally {
      setBusy(false);
      void refresh();
    }
  };
  return (
    <Dialog
      open onClose={() => { stopped.current = true; onClose(); }} title={`Purge ${queue.name}`}
      foot={
        <>
          {busy ? <Button icon="stop" onClick={() => { stopped.current = true; }}>Stop</Button> : <Button onClick={onClose}>Keep as it is</Button>}
          <Button look="danger primary" busy={busy} disabled={typed !== queue.name || size(queue, what) === 0} onClick={() => void run()}>
            {ended ? "Delete" : "Cancel"} {count(size(queue, what))}
          </Button>
        </>
      }
    >
      <div className="field">
        <label htmlFor={`${id}-what`}>What</label>
        <select id={`${id}-what`} className="input" value={what} disabled={busy} onChange={(event) => setWhat(event.target.value as What)}>
          {WHAT.map((its) => <option key={its} value={its}>{its === "waiting" ? "all that wait" : its} ({count(size(queue, its))})</option>)}
        </select>
        <span className="hint">{ended ? "They are deleted, with their results and histories. This cannot be undone." : "They are cancelled with the reason purged, and kept as cancelled jobs are. Running ones are left alone."}</span>
      </div>
      <div className="field">
        <label htmlFor={`${id}-typed`}>Type <code>{queue.name}</code> to go on</label>
        <input id={`${id}-typed`} className="input mono" value={typed} autoComplete="off" spellCheck={false} onChange={(event) => setTyped(event.target.value)} />
      </div>
      {removed === null ? null : <p className="num muted" aria-live="polite">{many(removed, "job")} so far</p>}
      {error === null ? null : <Notice tone="bad" title="It was refused">{error}</Notice>}
    </Dialog>
  );
}
