import { useSearchParams } from "react-router";

import { useErrors, useQueues } from "@/api/queries";
import { useTitle } from "@/lib/title";
import { Button } from "@/ui/button";
import { Panel, Skeleton, Trouble } from "@/ui/parts";

import { ErrorTable } from "./error-table";

export function Errors() {
  useTitle("Errors");
  const [params, setParams] = useSearchParams();
  const queue = params.get("queue") ?? undefined;
  const errors = useErrors(queue);
  const queues = useQueues();
  const all = (errors.data?.pages ?? []).flatMap((page) => page.errors).toSorted((a, b) => (b.last_seen ?? "").localeCompare(a.last_seen ?? ""));
  return (
    <>
      <div className="page-head">
        <h1>Errors</h1>
        <span className="muted">failures by kind, the latest first</span>
        <div className="actions">
          <select className="input" aria-label="Queue" value={queue ?? ""} onChange={(event) => setParams(event.target.value ? { queue: event.target.value } : {})}>
            <option value="">All queues</option>
            {(queues.data ?? []).map((its) => <option key={its.name} value={its.name}>{its.name}</option>)}
          </select>
        </div>
      </div>
      {errors.error && !errors.data ? <Trouble error={errors.error} again={() => void errors.refetch()} /> : null}
      <Panel bare>
        {errors.isPending ? <div className="panel-body"><Skeleton lines={6} /></div> : <ErrorTable errors={all} />}
        {errors.hasNextPage ? <div className="list-foot"><Button small busy={errors.isFetchingNextPage} onClick={() => void errors.fetchNextPage()}>More queues</Button></div> : null}
      </Panel>
    </>
  );
}
