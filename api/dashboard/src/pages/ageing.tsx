import { Link } from "react-router";

import type { JobRow } from "@/api/types";
import { duration } from "@/lib/format";
import { useNow } from "@/lib/now";
import { to } from "@/lib/to";

/**
 * The head of a line as it is ordered: who has waited longest, with a head start for priority. Its
 * score is `eligible_at - priority * aging_ms`; the lowest runs first.
 */
export function Ageing({ jobs, agingMs }: { jobs: readonly JobRow[]; agingMs: number }) {
  const now = useNow();
  const rows = jobs.map((job) => {
    const waited = Math.max(0, now - Date.parse(job.eligible_at ?? job.created_at ?? ""));
    const credit = job.priority * agingMs;
    return { job, waited, credit, sum: waited + credit };
  });
  const top = Math.max(1, ...rows.map((row) => Math.max(row.waited, row.sum)));
  return (
    <div className="ageing">
      <ol>
        {rows.map(({ job, waited, credit }, i) => (
          <li key={job.id} className="ageing-row">
            <span className="ageing-rank num">{i + 1}</span>
            <span className="ageing-name">
              <Link to={to.job(job.id)} className="link clip">{job.job_type}</Link>
              <code className="faint clip" title={job.id}>{job.id.slice(-6)}</code>
            </span>
            <span className="ageing-bar" aria-hidden="true">
              <span className="waited" style={{ width: `${(Math.max(0, credit < 0 ? waited + credit : waited) / top) * 100}%` }} />
              {credit > 0 ? <span className="credit" style={{ width: `${(credit / top) * 100}%` }} /> : null}
              {credit < 0 ? <span className="debt" style={{ width: `${(Math.min(waited, -credit) / top) * 100}%` }} /> : null}
            </span>
            <span className="ageing-sum num muted">
              {duration(Math.floor(waited / 1000) * 1000)}
              {credit === 0 ? null : <span className="faint"> {credit > 0 ? "+" : "−"} {duration(Math.abs(credit))}</span>}
            </span>
          </li>
        ))}
      </ol>
      <p className="faint ageing-legend">
        <span><i className="waited" /> waited so far</span>
        <span><i className="credit" /> head start by priority</span>
        {rows.some((row) => row.credit < 0) ? <span><i className="debt" /> held back by priority</span> : null}
        <span>One point of priority is worth {agingMs === 0 ? "nothing: this queue is first come, first served" : `${duration(agingMs)} of waiting`}.</span>
      </p>
    </div>
  );
}
