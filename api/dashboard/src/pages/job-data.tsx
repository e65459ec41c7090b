import { useNamespace } from "@/api/queries";
import type { Job } from "@/api/types";
import { Json } from "@/ui/json";
import { At, Code, Empty, Panel } from "@/ui/parts";

const TABS = [["error", "Error"], ["payload", "Payload"], ["result", "Result"], ["log", "Log"], ["redis", "redis-cli"]] as const;
type Tab = (typeof TABS)[number][0];

/** What was given to the job and what came of it. The address holds which is shown. */
export function JobData({ job, tab, onTab }: { job: Job; tab: string; onTab: (tab: string) => void }) {
  const usual: Tab = job.error ? "error" : job.state === "succeeded" && job.result !== null ? "result" : "payload";
  const shown: Tab = TABS.find(([name]) => name === tab)?.[0] ?? usual;
  const marks: Partial<Record<Tab, number>> = { log: job.log.length };
  return (
    <Panel bare>
      <div className="tabs inset" role="tablist" aria-label="Data of the job">
        {TABS.filter(([name]) => name !== "error" || job.error || tab === "error").map(([name, label]) => (
          <button key={name} type="button" role="tab" id={`tab-${name}`} aria-selected={name === shown} aria-controls="job-data" className="tab"
            onClick={() => onTab(name)}>
            {label}
            {marks[name] ? <span className="badge-count">{marks[name]}</span> : null}
          </button>
        ))}
      </div>
      <div className="panel-body tabbed" role="tabpanel" id="job-data" aria-labelledby={`tab-${shown}`}>
        {shown === "error" ? <ErrorOf job={job} /> : null}
        {shown === "payload" ? <Payload job={job} /> : null}
        {shown === "result" ? <Result job={job} /> : null}
        {shown === "log" ? <Log job={job} /> : null}
        {shown === "redis" ? <RedisCli job={job} /> : null}
      </div>
    </Panel>
  );
}

function ErrorOf({ job }: { job: Job }) {
  if (!job.error) return <Empty title="It left no error" small />;
  const { type, message, traceback } = job.error;
  return (
    <div className="stack">
      <p className="error-line break"><strong>{type ?? "Error"}</strong>{message ? <>: {message}</> : null}</p>
      {traceback ? <Code text={traceback} label="Traceback" /> : null}
      {traceback === null && job.errorText ? <Json text={job.errorText} label="Error" /> : null}
    </div>
  );
}

function Hidden() {
  return <Empty icon="keys" title="This key may not see payloads and results" small><p>That takes the scope <code>payload</code>.</p></Empty>;
}

function Payload({ job }: { job: Job }) {
  if (job.hidden) return <Hidden />;
  if (job.payload !== null) return <Json text={job.payload} label="Payload" />;
  return (
    <Empty title="The payload is no longer kept" small>
      <p>A success drops it. Submit with <code>keep_payload: true</code> to keep it as long as the job.</p>
    </Empty>
  );
}

function Result({ job }: { job: Job }) {
  if (job.hidden) return <Hidden />;
  if (job.result !== null) return <Json text={job.result} label="Result" />;
  if (job.state === "succeeded") {
    return <Empty title="The result is null, or no longer kept" small><p><code>result_ttl</code> of a submission says how long it is.</p></Empty>;
  }
  return <Empty title="There is no result" small><p>A job has one once it has succeeded.</p></Empty>;
}

function Log({ job }: { job: Job }) {
  if (job.log.length === 0) return <Empty title="It has said nothing" small><p>A task writes here with <code>ctx.log("…")</code>. The last 200 lines are kept.</p></Empty>;
  return (
    <div className="code log">
      <pre tabIndex={0} role="region" aria-label="Log">
        {job.log.map((line, i) => (
          <div key={i} className="log-line"><span className="faint"><At at={line.at} ms /></span><span className="log-text">{line.line}</span></div>
        ))}
      </pre>
    </div>
  );
}

/** What shows the same by hand, where this page cannot be reached. */
function RedisCli({ job }: { job: Job }) {
  const ulid = job.id.slice(job.id.lastIndexOf(":") + 1);
  const namespace = useNamespace();
  const key = (name: string) => `'${namespace ?? "taskq"}:{${job.queue}}:${name}'`;
  const lines = [`redis-cli HGETALL ${key(`job:${ulid}`)}`, `redis-cli LRANGE ${key(`history:${ulid}`)} 0 -1`, `redis-cli LRANGE ${key(`log:${ulid}`)} 0 -1`];
  if (job.state === "queued") lines.push(`redis-cli ZRANK ${key(`ready:${job.job_type}`)} ${ulid}`);
  else if (job.state === "running") lines.push(`redis-cli LRANGE ${key(`processing:${job.worker ?? ""}`)} 0 -1`, `redis-cli ZSCORE ${key("leases")} ${job.worker ?? ""}`);
  else lines.push(`redis-cli ZSCORE ${key(job.state)} ${ulid}`);
  return (
    <div className="stack">
      <p className="muted">Everything is plain text in Redis.{namespace === undefined ? <> Another namespace than <code>taskq</code> comes first in each key.</> : null}</p>
      <Code text={lines.join("\n")} label="Commands" />
      <p className="muted">The same in words:</p>
      <Code text={`taskq jobs show ${job.id}`} label="Command" />
    </div>
  );
}
