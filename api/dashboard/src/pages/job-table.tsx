import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { memo, useCallback, useEffect, useRef, useState } from "react";
import { Link, useNavigate } from "react-router";

import { useMay } from "@/api/may";
import { isOver, type JobRow } from "@/api/types";
import { to } from "@/lib/to";
import { StateBadge } from "@/ui/icons";
import { Ago } from "@/ui/parts";
import { isTyping } from "@/shell/shortcuts";

interface Props {
  rows: readonly JobRow[];
  chosen: ReadonlySet<string>;
  onChoose: (chosen: ReadonlySet<string>) => void;
  /** Nearly the last row is seen. */
  onEnd: () => void;
  /** Whether the first rows are out of sight: what is read then must not jump. */
  onAway: (away: boolean) => void;
  dimmed: boolean;
}

const HEIGHT = 45;
const NARROW_HEIGHT = 68;

export function JobTable({ rows, chosen, onChoose, onEnd, onAway, dimmed }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const narrow = useNarrow();
  const operate = useMay()("operate");
  const [at, setAt] = useState(-1);
  const virtual = useWindowVirtualizer({
    count: rows.length,
    estimateSize: () => (narrow ? NARROW_HEIGHT : HEIGHT),
    overscan: 12,
    scrollMargin: box.current?.offsetTop ?? 0,
    getItemKey: (i) => rows[i]?.id ?? i,
  });
  useEffect(() => virtual.measure(), [narrow, virtual]);
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  const first = items[0]?.index ?? 0;
  useEffect(() => {
    if (last >= rows.length - 15) onEnd();
  }, [last, rows.length]); // eslint-disable-line
  useEffect(() => onAway(first > 20), [first > 20]); // eslint-disable-line
  const latest = useRef({ chosen, onChoose });
  latest.current = { chosen, onChoose };
  // The same function always, so that rows which have not changed are not drawn again while one scrolls.
  const toggle = useCallback((id: string) => {
    const next = new Set(latest.current.chosen);
    if (!next.delete(id)) next.add(id);
    latest.current.onChoose(next);
  }, []);
  useListKeys({ rows, at, setAt, toggle: operate ? toggle : () => undefined, show: (i) => virtual.scrollToIndex(i, { align: "auto" }) });
  const all = rows.length > 0 && rows.every((row) => chosen.has(row.id));

  return (
    <div role="table" aria-label="Jobs" aria-rowcount={rows.length} className={`job-table ${dimmed ? "dimmed" : ""}`}>
      <div role="row" className="job-row job-head">
        <span role="columnheader" className="c-check">
          {operate ? (
            <input type="checkbox" aria-label="Select all that are shown" checked={all}
              onChange={() => onChoose(all ? new Set() : new Set(rows.map((row) => row.id)))} />
          ) : null}
        </span>
        <span role="columnheader" className="c-state">State</span>
        <span role="columnheader" className="c-type">Type</span>
        <span role="columnheader" className="c-id">Id</span>
        <span role="columnheader" className="c-queue">Queue</span>
        <span role="columnheader" className="c-prio">Priority</span>
        <span role="columnheader" className="c-runs">Runs</span>
        <span role="columnheader" className="c-note">Note</span>
        <span role="columnheader" className="c-when">When</span>
      </div>
      <div ref={box} role="rowgroup" className="job-rows" style={{ height: virtual.getTotalSize() }}>
        {items.map((item) => {
          const row = rows[item.index]!;
          return (
            <Row key={row.id} row={row} index={item.index} top={item.start - virtual.options.scrollMargin} height={item.size}
              current={item.index === at} chosen={chosen.has(row.id)} onToggle={operate ? toggle : null} />
          );
        })}
      </div>
    </div>
  );
}

const Row = memo(function Row({ row, index, top, height, current, chosen, onToggle }: {
  row: JobRow; index: number; top: number; height: number; current: boolean; chosen: boolean; onToggle: ((id: string) => void) | null;
}) {
  return (
    <div role="row" aria-rowindex={index + 1} aria-selected={chosen} data-current={current || undefined}
      className="job-row" style={{ transform: `translateY(${top}px)`, height }}>
      <span role="cell" className="c-check">
        {onToggle ? <input type="checkbox" checked={chosen} onChange={() => onToggle(row.id)} aria-label={`Select ${row.job_type} ${row.id}`} /> : null}
      </span>
      <span role="cell" className="c-state"><StateBadge state={row.state} /></span>
      <span role="cell" className="c-type"><Link to={to.job(row.id)} className="clip job-link">{row.job_type}</Link></span>
      <span role="cell" className="c-id clip mono" title={row.id}>{row.id.slice(row.id.lastIndexOf(":") + 1)}</span>
      <span role="cell" className="c-queue clip" title={row.queue}>{row.queue}</span>
      <span role="cell" className={`c-prio num ${row.priority === 0 ? "faint" : ""}`}>{row.priority}</span>
      <span role="cell" className={`c-runs num ${row.attempts > 1 ? "" : "faint"}`}>{row.attempts}</span>
      <span role="cell" className="c-note clip">{note(row)}</span>
      <span role="cell" className="c-when num"><When row={row} /></span>
    </div>
  );
});

function note(row: JobRow): string {
  if (row.cancel_requested && row.state === "running") return "asked to stop";
  const parts = [
    row.reason && row.reason !== row.state ? row.reason : "",
    row.failures > 0 ? `failed ${row.failures}×` : "",
    row.crashes > 0 ? `crashed ${row.crashes}×` : "",
    row.lost > 0 ? `lost ${row.lost}×` : "",
  ].filter(Boolean);
  if (row.state === "running" && row.worker) parts.push(`on ${row.worker}`);
  return parts.join(", ");
}

/** The one time that matters in this state. */
function When({ row }: { row: JobRow }) {
  if (isOver(row.state)) return <Ago at={row.finished_at} />;
  if (row.state === "running") return <>started <Ago at={row.started_at} /></>;
  if (row.state === "scheduled" || row.state === "retrying") return <>due <Ago at={row.eligible_at} /></>;
  return <>since <Ago at={row.eligible_at ?? row.created_at} /></>;
}

function useNarrow(): boolean {
  const query = "(max-width: 760px)";
  const [narrow, setNarrow] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const look = () => setNarrow(media.matches);
    media.addEventListener("change", look);
    return () => media.removeEventListener("change", look);
  }, []);
  return narrow;
}

function useListKeys({ rows, at, setAt, toggle, show }: {
  rows: readonly JobRow[]; at: number; setAt: (at: number) => void; toggle: (id: string) => void; show: (i: number) => void;
}): void {
  const navigate = useNavigate();
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event)) return;
      const step = { j: 1, k: -1 }[event.key];
      if (step !== undefined) {
        const next = Math.max(0, Math.min(rows.length - 1, at + step));
        setAt(next);
        show(next);
        return;
      }
      const row = rows[at];
      if (row === undefined) return;
      if (event.key === "x") toggle(row.id);
      // A link or button that has the focus keeps its own Enter.
      if (event.key === "Enter" && (document.activeElement === document.body || document.activeElement?.id === "main")) void navigate(to.job(row.id));
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  });
}
