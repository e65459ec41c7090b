import { useReady, useVersion } from "@/api/queries";
import { useTitle } from "@/lib/title";
import { Code, Notice, Panel, Skeleton, Trouble } from "@/ui/parts";

export function Server() {
  useTitle("Redis");
  const ready = useReady();
  const version = useVersion();
  return (
    <>
      <div className="page-head"><h1>Redis</h1></div>
      {!ready.data ? (ready.error ? <Trouble error={ready.error} again={() => void ready.refetch()} /> : <Panel><Skeleton /></Panel>) : null}
      {ready.data?.status === "not_ready" ? (
        <Notice tone="bad" title="Jobs cannot be taken now">
          <ul>{ready.data.reasons.map((reason) => <li key={reason}>{reason}</li>)}</ul>
        </Notice>
      ) : null}
      {ready.data?.status === "ready" ? (
        <>
          <Notice tone="good" title="Jobs can be taken">The server answers, takes writes, has room, and is set up so that it keeps jobs.</Notice>
          {ready.data.warnings.map((warning) => <Notice key={warning} tone="warn" title="A setting is worth a look">{warning}</Notice>)}
          <Panel title="Facts">
            <dl className="facts">
              <dt>Server</dt><dd>{ready.data.server}</dd>
              <dt>API</dt><dd>taskq {version.data ?? "…"}</dd>
            </dl>
          </Panel>
        </>
      ) : null}
      <Panel title="Look for what is out of place" note="it changes nothing without --fix">
        <Code text="taskq doctor" label="Command" />
      </Panel>
    </>
  );
}
