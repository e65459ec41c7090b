import { NavLink } from "react-router";

import { useMay } from "@/api/may";
import { useQueues, useVersion } from "@/api/queries";
import { compact } from "@/lib/format";
import { FOR_ADMINS, to } from "@/lib/to";
import { Icon, Logo, type IconName } from "@/ui/icons";
import { base } from "@/api/client";

const PAGES: readonly (readonly [string, IconName, string])[] = [
  [to.overview, "overview", "Overview"],
  [to.jobs(), "jobs", "Jobs"],
  [to.errors, "errors", "Errors"],
  [to.workers, "workers", "Workers"],
  [to.types, "types", "Job types"],
  [to.server, "server", "Redis and doctor"],
  [to.keys, "keys", "Keys"],
  [to.audit, "audit", "Audit"],
];

const SHOWN = 12;

export function Rail() {
  const admin = useMay()("admin");
  return (
    <nav className="rail" aria-label="Pages">
      <NavLink to={to.overview} className="brand" aria-label="taskq, overview" aria-current={undefined}>
        <Logo />
        <span className="label">taskq</span>
      </NavLink>
      <ul className="nav">
        {PAGES.filter(([where]) => admin || !FOR_ADMINS.includes(where)).map(([where, icon, name]) => (
          <li key={where}>
            <NavLink to={where} end={where === to.overview} className="nav-link" title={name}>
              <Icon name={icon} />
              <span className="label">{name}</span>
            </NavLink>
          </li>
        ))}
      </ul>
      <Queues />
      <Foot />
    </nav>
  );
}

function Queues() {
  const { data } = useQueues();
  if (!data || data.length === 0) return null;
  return (
    <div className="queues-nav">
      <div className="nav-head">Queues</div>
      <ul className="nav">
        {data.slice(0, SHOWN).map((queue) => (
          <li key={queue.name}>
            <NavLink to={to.queue(queue.name)} className="nav-link small">
              {queue.paused ? <Icon name="pause" className="small" /> : <Icon name="queue" className="small" />}
              <span className="clip">{queue.name}</span>
              {(queue.counts.queued ?? 0) > 0 ? (
                <span className="badge-count" title="waiting">{compact(queue.counts.queued ?? 0)}</span>
              ) : null}
            </NavLink>
          </li>
        ))}
      </ul>
      {data.length > SHOWN ? (
        <NavLink to={to.overview} className="nav-link small" aria-current={undefined}>all {data.length}</NavLink>
      ) : null}
    </div>
  );
}

function Foot() {
  const { data: version } = useVersion();
  return (
    <div className="rail-foot">
      <a className="link" href={new URL("docs", base).href}>API reference</a>
      {version ? <span>taskq {version}</span> : null}
    </div>
  );
}
