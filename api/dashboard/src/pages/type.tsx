import { useParams } from "react-router";

import { useJobTypes } from "@/api/queries";
import type { JobType } from "@/api/types";
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
  if (!types.data) return types.error ? <Trouble error={types.error} again={() => void types.refetch()} /> : <Panel><Skeleton lines={6} /></Panel>;
  const type = types.data.find((its) => its.job_type === name);
  return (
    <>
      <div className="page-head">
        <span className="crumb">Job type</span>
        <h1 className="break">{name}</h1>
        <div className="actions"><ButtonLink to={to.jobs({ job_type: name })} icon="jobs">Its jobs</ButtonLink></div>
      </div>
      {type?.description ? <p className="muted lead">{type.description}</p> : null}
      {type ? null : <Notice tone="warn" title="No worker has published this type">It may be spelt otherwise, or its release has not started yet. A job of it waits until a worker runs it.</Notice>}
      {type?.workers === 0 ? <Notice tone="warn" title="No worker runs it now">A job of it waits until one does.</Notice> : null}
      {type?.schema_problem ? <Notice tone="warn" title="Payloads are not checked">Its schema {type.schema_problem}.</Notice> : null}
      <div className="grid two">
        <SubmitForm key={name} name={name} schema={type?.payload_schema ?? undefined} queue={type?.queue ?? undefined} />
        <div className="stack">
          {type ? <Facts type={type} /> : null}
          {type?.payload_schema ? <Panel title="Schema of the payload"><Json text={JSON.stringify(type.payload_schema)} label="Schema" /></Panel> : null}
        </div>
      </div>
    </>
  );
}

function Facts({ type }: { type: JobType }) {
  return (
    <Panel title="Facts">
      <dl className="facts">
        <dt>Queue</dt><dd>{type.queue ?? "default"}</dd>
        <dt>Attempts</dt><dd>{type.max_attempts ?? "as by default"}</dd>
        <dt>Timeout</dt><dd>{type.timeout === null ? "as by default" : type.timeout === 0 ? "none" : duration(type.timeout * 1000)}</dd>
        <dt>Workers</dt><dd>{count(type.workers)}</dd>
        <dt>Waited</dt><dd><Percentiles of={type.wait_ms} /></dd>
        <dt>Ran</dt><dd><Percentiles of={type.run_ms} /></dd>
      </dl>
    </Panel>
  );
}

export function Percentiles({ of: its }: { of: { p50: number; p95: number; p99: number } | null }) {
  if (its === null) return <span className="faint">no run in the last minutes</span>;
  return (
    <span className="num">
      {duration(its.p50)} <span className="faint">p50 ·</span> {duration(its.p95)} <span className="faint">p95 ·</span> {duration(its.p99)} <span className="faint">p99</span>
    </span>
  );
}
