import { useParams } from "react-router";

import { useJobTypes, useWorkers } from "@/api/queries";
import { count, duration } from "@/lib/format";
import { useTitle } from "@/lib/title";
import { to } from "@/lib/to";
import { ButtonLink } from "@/ui/button";
import { Json } from "@/ui/json";
import { Notice, Panel, Skeleton, Trouble } from "@/ui/parts";

import { SubmitForm } from "./submit-form";

export function TypePage() {
  const { name = "" } = useParams();
  useTitle(name);
  const types = useJobTypes();
  const workers = useWorkers();
  if (!types.data) return types.error ? <Trouble error={types.error} again={() => void types.refetch()} /> : <Panel><Skeleton lines={6} /></Panel>;
  const published = types.data.find((type) => type.job_type === name)?.published ?? {};
  const known = types.data.some((type) => type.job_type === name);
  const running = (workers.data ?? []).filter((worker) => worker.job_types.includes(name));
  return (
    <>
      <div className="page-head">
        <span className="crumb">Job type</span>
        <h1 className="break">{name}</h1>
        <div className="actions"><ButtonLink to={to.jobs({ job_type: name })} icon="jobs">Its jobs</ButtonLink></div>
      </div>
      {published.description ? <p className="muted">{String(published.description)}</p> : null}
      {known ? null : <Notice tone="warn" title="No worker has published this type">It may be spelt otherwise, or its release has not started yet. A job of it waits until a worker runs it.</Notice>}
      {known && workers.data && running.length === 0 ? <Notice tone="warn" title="No worker runs it now">A job of it waits until one does.</Notice> : null}
      <div className="grid two">
        <SubmitForm key={name} name={name} published={published} />
        <div className="stack">
          <Panel title="Facts">
            <dl className="facts">
              <dt>Queue</dt><dd>{published.queue ?? "default"}</dd>
              <dt>Attempts</dt><dd>{published.max_attempts ?? "as by default"}</dd>
              <dt>Timeout</dt><dd>{typeof published.timeout === "number" ? (published.timeout === 0 ? "none" : duration(published.timeout * 1000)) : "as by default"}</dd>
              <dt>Workers</dt><dd>{count(running.length)}</dd>
            </dl>
          </Panel>
          {published.schema ? <Panel title="Schema of the payload"><Json text={JSON.stringify(published.schema)} label="Schema" /></Panel> : null}
        </div>
      </div>
    </>
  );
}
