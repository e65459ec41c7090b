import { Link, useSearchParams } from "react-router";

import { useMay } from "@/api/may";
import { useJobTypes, useQueues } from "@/api/queries";
import { compact, count, duration } from "@/lib/format";
import { useTitle } from "@/lib/title";
import { to } from "@/lib/to";
import { ButtonLink } from "@/ui/button";
import { Empty, Panel, Skeleton, Tag, Trouble } from "@/ui/parts";

export function Types() {
  useTitle("Job types");
  const types = useJobTypes();
  const queues = useQueues();
  const submit = useMay()("submit");
  const [params, setParams] = useSearchParams();
  const text = params.get("q") ?? "";
  if (!types.data) return types.error ? <Trouble error={types.error} again={() => void types.refetch()} /> : <Panel><Skeleton lines={6} /></Panel>;
  const shown = types.data.filter((type) => `${type.job_type} ${type.description ?? ""}`.toLowerCase().includes(text.toLowerCase()));
  const waiting = (name: string) => (queues.data ?? []).flatMap((queue) => queue.types).filter((line) => line.job_type === name).reduce((sum, line) => sum + line.waiting, 0);
  return (
    <>
      <div className="page-head"><h1>Job types</h1><span className="muted">{count(types.data.length)} that workers have published</span></div>
      {types.data.length === 0 ? (
        <Panel><Empty icon="types" title="No worker has published a job type"><p>A worker does when it starts: <code>taskq worker -A yourapp.jobs:app</code></p></Empty></Panel>
      ) : (
        <>
          {types.data.length > 6 ? (
            <div className="field filter"><input className="input" type="search" aria-label="Find job types" placeholder="Find by name or description" value={text}
              onChange={(event) => setParams(event.target.value ? { q: event.target.value } : {}, { replace: true })} /></div>
          ) : null}
          <Panel bare>
            <div className="table-box">
              <table className="table">
                <thead><tr><th>Job type</th><th>Queue</th><th className="right">Waiting</th><th className="right">Workers</th><th className="right" title="95 % waited no longer, in the last 10 minutes">Wait, p95</th><th className="right" title="95 % ran no longer, in the last 10 minutes">Run, p95</th><th><span className="hidden-text">Submit</span></th></tr></thead>
                <tbody>
                  {shown.map((type) => (
                    <tr key={type.job_type} className="linked">
                      <td><Link to={to.type(type.job_type)} className="name break">{type.job_type}</Link>{type.description ? <div className="faint">{type.description}</div> : null}</td>
                      <td>{type.queue ? <Link to={to.queue(type.queue)} className="tag">{type.queue}</Link> : "–"}</td>
                      <td className="right">{waiting(type.job_type) === 0 ? <span className="zero">0</span> : compact(waiting(type.job_type))}</td>
                      <td className="right">{type.workers === 0 ? <Tag tone="warn">none</Tag> : type.workers}</td>
                      <td className="right muted nowrap">{type.wait_ms === null ? "–" : duration(type.wait_ms.p95)}</td>
                      <td className="right muted nowrap">{type.run_ms === null ? "–" : duration(type.run_ms.p95)}</td>
                      <td className="right">{submit ? <ButtonLink to={to.type(type.job_type)} small icon="plus">Submit</ButtonLink> : null}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
            {shown.length === 0 ? <Empty title="No job type fits" small /> : null}
          </Panel>
        </>
      )}
    </>
  );
}
