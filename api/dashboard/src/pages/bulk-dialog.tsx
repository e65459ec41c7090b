import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useId, useState } from "react";

import { ApiError, get, path, send } from "@/api/client";
import type { Bulk, BulkFilter, BulkPreview } from "@/api/types";
import { useAct } from "@/lib/actions";
import { count, many } from "@/lib/format";
import { randomId } from "@/lib/id";
import { Button } from "@/ui/button";
import { Dialog } from "@/ui/dialog";
import { Meter, Notice, Skeleton } from "@/ui/parts";

export type Action = "cancel" | "retry" | "delete" | "edit";

export interface Wanted {
  action: Action;
  filter: Partial<BulkFilter>;
}

const WORDS: Record<Action, { title: string; button: string; what: string; danger: boolean }> = {
  retry: { title: "Retry", button: "Retry them", what: "They go back in line with a clean count of failures.", danger: false },
  cancel: { title: "Cancel", button: "Cancel them", what: "Those that wait are cancelled; those that run are asked to stop.", danger: true },
  delete: { title: "Delete", button: "Delete them", what: "They are gone, with their results and histories. This cannot be undone.", danger: true },
  edit: { title: "Change the priority of", button: "Change them", what: "Their place in line moves by the difference.", danger: false },
};

/** Counts what an action on all that match would be about, starts it, shows how far it is, and can stop it. */
export function BulkDialog({ wanted, onClose, says }: { wanted: Wanted | null; onClose: () => void; says?: string }) {
  if (wanted === null) return null;
  return <Steps wanted={wanted} onClose={onClose} says={says} />;
}

function Steps({ wanted, onClose, says }: { wanted: Wanted; onClose: () => void; says?: string }) {
  const words = WORDS[wanted.action];
  const [rate, setRate] = useState("");
  const [priority, setPriority] = useState("0");
  const [typed, setTyped] = useState("");
  const [started, setStarted] = useState<Bulk | null>(null);
  const [key] = useState(randomId);
  const id = useId();
  const { refresh } = useAct();
  const preview = useQuery({
    queryKey: ["bulk-preview", wanted],
    queryFn: () => send<BulkPreview>("POST", "/bulk/preview", { action: wanted.action, filter: wanted.filter }),
    staleTime: 0, refetchOnWindowFocus: false,
  });
  const start = useMutation({
    mutationFn: () => send<Bulk>("POST", "/bulk", {
      action: wanted.action, filter: wanted.filter,
      ...(rate.trim() === "" ? {} : { per_second: Number(rate) }), ...(wanted.action === "edit" ? { priority: Number(priority) } : {}),
    }, { "Idempotency-Key": key }),
    onSuccess: (bulk) => {
      setStarted(bulk);
      void refresh();
    },
  });
  const n = preview.data?.matched ?? 0;
  const badRate = rate.trim() !== "" && !/^[1-9]\d{0,5}$/.test(rate.trim());
  const badPriority = wanted.action === "edit" && !(/^-?\d{1,3}$/.test(priority.trim()) && Math.abs(Number(priority)) <= 100);
  const sure = wanted.action !== "delete" || typed === "delete";
  if (started !== null) return <Running bulk={started} title={words.title} onClose={onClose} />;
  return (
    <Dialog
      open onClose={onClose} title={`${words.title} all that match`}
      foot={
        <>
          <Button onClick={onClose}>Leave them</Button>
          <Button look={words.danger ? "danger primary" : "primary"} busy={start.isPending} disabled={n === 0 || badRate || badPriority || !sure} onClick={() => start.mutate()}>
            {words.button}
          </Button>
        </>
      }
    >
      <dl className="facts">
        {Object.entries(wanted.filter).filter(([, value]) => value).map(([name, value]) => (
          <div className="facts-row" key={name}><dt>{name.replace("_", " ")}</dt><dd><code>{Array.isArray(value) ? many(value.length, "job") : String(value)}</code></dd></div>
        ))}
      </dl>
      {preview.isPending ? <Skeleton lines={2} /> : preview.error ? (
        <Notice tone="bad" title="It cannot be counted">{messageOf(preview.error)}</Notice>
      ) : (
        <p className="bulk-count">
          <strong className="num">{preview.data.complete ? "" : "at least "}{many(n, "job")}</strong>
          <span className="faint">{preview.data.complete ? "" : ` among the first ${count(preview.data.looked_at)} that were looked at`}{says ? ` · ${says}` : ""}</span>
        </p>
      )}
      <p className="muted">{words.what} What ends or comes after the start is left alone.</p>
      <div className="fields">
        {wanted.action === "edit" ? (
          <div className="field">
            <label htmlFor={`${id}-priority`}>Priority</label>
            <input id={`${id}-priority`} className="input num" value={priority} inputMode="numeric" aria-invalid={badPriority} onChange={(event) => setPriority(event.target.value)} />
            <span className="hint">-100 to 100</span>
          </div>
        ) : null}
        <div className="field">
          <label htmlFor={`${id}-rate`}>Jobs a second, at most</label>
          <input id={`${id}-rate`} className="input num" value={rate} inputMode="numeric" placeholder="as fast as it goes" aria-invalid={badRate} onChange={(event) => setRate(event.target.value)} />
          <span className="hint">spares what the jobs call</span>
        </div>
        {wanted.action === "delete" ? (
          <div className="field">
            <label htmlFor={`${id}-typed`}>Type <code>delete</code> to go on</label>
            <input id={`${id}-typed`} className="input mono" value={typed} autoComplete="off" onChange={(event) => setTyped(event.target.value)} />
          </div>
        ) : null}
      </div>
      {start.error ? <Notice tone="bad" title="It was refused">{messageOf(start.error)}</Notice> : null}
    </Dialog>
  );
}

const messageOf = (error: unknown): string => (error instanceof ApiError ? error.message : String(error));

function Running({ bulk, title, onClose }: { bulk: Bulk; title: string; onClose: () => void }) {
  const { refresh } = useAct();
  const now = useQuery({
    queryKey: ["bulk", bulk.id],
    queryFn: ({ signal }) => get<Bulk>(path`/bulk/${bulk.id}`, {}, signal),
    initialData: bulk,
    refetchInterval: (query) => (query.state.data?.state === "running" ? 700 : false),
  });
  const its = now.data;
  const over = its.state !== "running";
  useEffect(() => {
    if (over) void refresh();
  }, [over, refresh]);
  const stop = useMutation({
    mutationFn: () => send<Bulk>("POST", path`/bulk/${bulk.id}/stop`),
    onSuccess: () => void now.refetch(),
  });
  return (
    <Dialog
      open onClose={onClose} title={over ? `${title}: ${its.state}` : `${title}: under way`}
      foot={
        <>
          {over ? null : <Button look="danger" icon="stop" busy={stop.isPending} onClick={() => stop.mutate()}>Stop</Button>}
          <Button look={over ? "primary" : undefined} onClick={onClose}>{over ? "Close" : "Let it run"}</Button>
        </>
      }
    >
      <BulkProgress bulk={its} />
      {over ? null : <p className="muted">It goes on also if this page is closed. Its queue shows it.</p>}
    </Dialog>
  );
}

export function BulkProgress({ bulk }: { bulk: Bulk }) {
  const share = bulk.state === "done" ? 1 : bulk.matched === 0 ? 0 : bulk.done / Math.max(1, bulk.matched);
  return (
    <div className="stack tight" aria-live="polite">
      <Meter share={share} label={`${bulk.action} of ${bulk.queue}`} state={bulk.state === "failed" ? "failed" : bulk.state === "done" ? "succeeded" : "running"} />
      <p className="num">
        <strong>{many(bulk.done, "job")} done</strong>
        <span className="faint"> · {count(bulk.looked_at)} looked at{bulk.skipped > 0 ? ` · ${count(bulk.skipped)} had moved on` : ""}</span>
      </p>
      {bulk.error ? <Notice tone="bad" title="It failed">{bulk.error}</Notice> : null}
    </div>
  );
}
