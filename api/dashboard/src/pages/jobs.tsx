import { DropdownMenu as Menu } from "radix-ui";
import { useMemo, useState } from "react";
import { useNavigate, useSearchParams } from "react-router";

import { useMay } from "@/api/may";
import { useJobs, useJobTypes, useQueues } from "@/api/queries";
import { STATES, type JobRow, type State } from "@/api/types";
import { compact, count, many } from "@/lib/format";
import { searchOf, searchText, type Search } from "@/lib/search";
import { useTitle } from "@/lib/title";
import { to } from "@/lib/to";
import { Button } from "@/ui/button";
import { StateIcon } from "@/ui/icons";
import { Empty, Panel, Skeleton, Trouble } from "@/ui/parts";

import { BulkDialog, type Action, type Wanted } from "./bulk-dialog";
import { JobTable } from "./job-table";
import { SearchBox } from "./search-box";
import { Selection } from "./selection";
import { Views } from "./views";

export function Jobs() {
  useTitle("Jobs");
  const [params, setParams] = useSearchParams();
  const navigate = useNavigate();
  const may = useMay();
  const search = searchOf(params);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [tail, setTail] = useState(true);
  const [bulk, setBulk] = useState<Wanted | null>(null);
  const queues = useQueues();
  const types = useJobTypes();
  const jobs = useJobs(search, tail && chosen.size === 0);
  const known = useMemo(
    () => ({
      queues: (queues.data ?? []).map((queue) => queue.name),
      types: (types.data ?? []).map((type) => type.job_type),
    }),
    [queues.data, types.data],
  );
  const find = (next: Search) => {
    setChosen(new Set());
    setParams(new URLSearchParams(Object.entries(next).filter(([, value]) => value)));
  };
  const rows = useMemo(() => distinct((jobs.data?.pages ?? []).flatMap((page) => page.jobs)), [jobs.data]);
  const looked = (jobs.data?.pages ?? []).reduce((sum, page) => sum + page.looked_at, 0);

  return (
    <>
      <div className="page-head">
        <h1>Jobs</h1>
        <div className="actions">
          {may("operate") ? <AllThatMatch search={search} onChoose={setBulk} /> : null}
          <Views search={search} onChoose={find} />
        </div>
      </div>
      <SearchBox search={search} known={known} onSearch={find} onId={(id) => void navigate(to.job(id))} />
      <StateTabs search={search} onChoose={(state) => find({ ...search, state })} />
      <Panel bare>
        {jobs.error && !jobs.data ? <div className="panel-body"><Trouble error={jobs.error} again={() => void jobs.refetch()} /></div> : null}
        {jobs.isPending ? <div className="panel-body"><Skeleton lines={10} /></div> : null}
        {jobs.data && rows.length === 0 && !jobs.hasNextPage ? <NoJobs search={search} /> : null}
        {rows.length > 0 ? (
          <JobTable rows={rows} chosen={chosen} onChoose={setChosen} onAway={(away) => setTail(!away)} dimmed={jobs.isPlaceholderData}
            onEnd={() => { if (jobs.hasNextPage && !jobs.isFetchingNextPage) void jobs.fetchNextPage(); }} />
        ) : null}
        {jobs.data ? (
          <More looked={looked} shown={rows.length} more={jobs.hasNextPage} busy={jobs.isFetchingNextPage} next={() => void jobs.fetchNextPage()}
            filtered={search.job_type !== undefined} />
        ) : null}
      </Panel>
      <Selection rows={rows} chosen={chosen} onDone={() => setChosen(new Set())} />
      <BulkDialog wanted={bulk} onClose={() => setBulk(null)} />
    </>
  );
}

const ACTIONS: readonly (readonly [Action, string, readonly State[]])[] = [
  ["retry", "Retry all", ["failed"]],
  ["cancel", "Cancel all", ["queued", "scheduled", "retrying", "running", "blocked"]],
  ["edit", "Change all priorities", ["queued", "scheduled", "retrying"]],
  ["delete", "Delete all", ["failed", "succeeded", "cancelled"]],
];

/** Acts on everything that a search finds, also on what is not shown. A queue has to be named. */
function AllThatMatch({ search, onChoose }: { search: Search; onChoose: (wanted: Wanted) => void }) {
  const fitting = ACTIONS.filter(([, , states]) => search.state === undefined || states.includes(search.state));
  return (
    <Menu.Root modal={false}>
      <Menu.Trigger asChild><Button icon="bulk">All that match</Button></Menu.Trigger>
      <Menu.Portal>
        <Menu.Content className="menu" align="end" sideOffset={6} collisionPadding={8}>
          {search.queue === undefined ? <Menu.Label className="menu-label">Name a queue first: queue:…</Menu.Label> : null}
          {fitting.map(([action, label]) => (
            <Menu.Item key={action} disabled={search.queue === undefined} className={`menu-item ${action === "delete" ? "danger" : ""}`}
              onSelect={() => onChoose({ action, filter: { queue: search.queue, state: search.state, job_type: search.job_type } })}>
              {label}
            </Menu.Item>
          ))}
        </Menu.Content>
      </Menu.Portal>
    </Menu.Root>
  );
}

/** A job that moved between two pages stands in both. */
function distinct(rows: readonly JobRow[]): JobRow[] {
  return [...new Map(rows.map((row) => [row.id, row])).values()];
}

function StateTabs({ search, onChoose }: { search: Search; onChoose: (state: State | undefined) => void }) {
  const queues = useQueues();
  const its = (queues.data ?? []).filter((queue) => search.queue === undefined || queue.name === search.queue);
  const counted = (state: State) => its.reduce((sum, queue) => sum + (queue.counts[state] ?? 0), 0);
  const lines = its.flatMap((queue) => queue.types).filter((line) => line.job_type === search.job_type);
  const number = (state: State) => {
    if (search.job_type === undefined) return counted(state);
    // By type only the waiting lines are counted; a number that nobody has must not be shown.
    return state === "queued" ? lines.reduce((sum, line) => sum + line.waiting, 0) : null;
  };
  return (
    <div className="tabs" role="group" aria-label="State">
      <button type="button" className="tab" aria-current={search.state === undefined} onClick={() => onChoose(undefined)}>All</button>
      {STATES.map((state) => {
        const n = number(state);
        return (
          <button key={state} type="button" className="tab" aria-current={search.state === state} onClick={() => onChoose(state)}>
            <StateIcon state={state} />
            {state}
            {n === null ? null : <span className={`badge-count ${state === "failed" && n > 0 ? "bad" : ""}`} title={count(n)}>{compact(n)}</span>}
          </button>
        );
      })}
    </div>
  );
}

function NoJobs({ search }: { search: Search }) {
  const text = searchText(search);
  if (text === "") {
    return (
      <Empty icon="jobs" title="No job is kept">
        <p>Submit one from a job type, or from a terminal with <code>taskq submit</code>.</p>
      </Empty>
    );
  }
  return (
    <Empty icon="search" title="No job fits">
      <p>Nothing is kept that fits <code>{text}</code>. Ended jobs are dropped after a while: the settings of their queue say when.</p>
    </Empty>
  );
}

function More({ looked, shown, more, busy, next, filtered }: {
  looked: number; shown: number; more: boolean; busy: boolean; next: () => void; filtered: boolean;
}) {
  return (
    <div className="list-foot">
      <span className="faint num">{many(shown, "job")} shown{filtered && looked > shown ? `, ${count(looked)} looked at` : ""}</span>
      {more ? <Button small busy={busy} onClick={next}>{shown === 0 ? "Look further" : "More"}</Button> : shown > 0 ? <span className="faint">That is all.</span> : null}
    </div>
  );
}
