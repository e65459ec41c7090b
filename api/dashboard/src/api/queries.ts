/** What pages ask for, how long it is fresh and how often it is asked again. */
import {
  keepPreviousData, QueryClient, useInfiniteQuery, useQuery,
} from "@tanstack/react-query";

import { live } from "@/lib/settings";
import { useStore } from "@/lib/store";

import { ApiError, get, path } from "./client";
import { fetchJob, listJobs, type JobFilter } from "./jobs";
import type { Statistics } from "./stats";
import { streaming } from "./stream";
import type { Bulk, ErrorGroup, JobType, Position, Queue, Ready, Server, Worker } from "./types";

export const FAST_MS = 2000;
export const CALM_MS = 5000;
const STREAMED_MS = 15_000;
const AWAY_MS = 12_000;

export function makeQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: 1000,
        gcTime: 60_000,
        refetchOnWindowFocus: () => live.get(),
        retry: (failures, error) => !(error instanceof ApiError && error.status >= 400 && error.status < 500) && failures < 2,
        retryDelay: (failures) => Math.min(1000 * 2 ** failures, 8000),
      },
      mutations: { retry: false },
    },
  });
}

interface Asked {
  state: { fetchFailureCount: number; status: string };
}

/** How often to ask again: not at all while paused, seldom while events say what is new, and seldom while
 * it fails. A hidden tab asks nothing. */
export function usePoll(ms: number): { refetchInterval: (query: Asked) => number | false } {
  const on = useStore(live);
  const streamed = useStore(streaming);
  const usual = streamed ? Math.max(STREAMED_MS, ms) : ms;
  return {
    refetchInterval: (query) => {
      if (!on) return false;
      return query.state.status === "error" || query.state.fetchFailureCount > 0 ? Math.max(AWAY_MS, ms) : usual;
    },
  };
}

export function useQueues() {
  return useQuery({
    queryKey: ["queues"],
    queryFn: ({ signal }) => get<{ queues: Queue[] }>("/queues", {}, signal).then((its) => its.queues),
    ...usePoll(FAST_MS),
  });
}

export function useQueue(name: string) {
  return useQuery({
    queryKey: ["queues", name],
    queryFn: ({ signal }) => get<Queue>(path`/queues/${name}`, {}, signal),
    ...usePoll(FAST_MS),
  });
}

export function useWorkers() {
  return useQuery({
    queryKey: ["workers"],
    queryFn: ({ signal }) => get<{ workers: Worker[] }>("/workers", {}, signal).then((its) => its.workers),
    ...usePoll(FAST_MS),
  });
}

export function useJobTypes() {
  return useQuery({
    queryKey: ["job-types"],
    queryFn: ({ signal }) => get<{ job_types: JobType[] }>("/job-types", {}, signal).then((its) => its.job_types),
    staleTime: 10_000,
    ...usePoll(30_000),
  });
}

/** What happened in the last minutes, by queue. */
export function useStats(minutes: number, queue?: string) {
  return useQuery<Statistics[]>({
    queryKey: ["stats", minutes, queue ?? ""],
    queryFn: async ({ signal }) =>
      (await get<{ queues: Statistics[] }>("/stats", { minutes, queue }, signal)).queues,
    placeholderData: keepPreviousData,
    // A figure of a minute does not change with each event.
    refetchInterval: usePoll(10_000).refetchInterval,
  });
}

/** Failures by kind: those of one queue, or of all. */
export function useErrors(queue?: string) {
  return useInfiniteQuery({
    queryKey: ["errors", queue ?? ""],
    queryFn: ({ pageParam, signal }) =>
      get<{ errors: ErrorGroup[]; next_cursor: string | null }>("/errors", { queue, cursor: pageParam }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next_cursor,
    ...usePoll(CALM_MS),
  });
}

/** Bulk actions of a queue: those under way are followed closely. */
export function useBulks(queue: string) {
  const poll = usePoll(CALM_MS);
  return useQuery({
    queryKey: ["bulks", queue],
    queryFn: ({ signal }) => get<{ bulks: Bulk[] }>("/bulk", { queue }, signal).then((its) => its.bulks),
    refetchInterval: (query) => (query.state.data?.some((bulk) => bulk.state === "running") ? 1000 : poll.refetchInterval(query)),
  });
}

/** Why a job waits, and when it is likely to start. */
export function usePosition(id: string, waits: boolean) {
  return useQuery({
    queryKey: ["job", id, "position"],
    queryFn: ({ signal }) => get<Position>(path`/jobs/${id}/position`, {}, signal),
    enabled: waits,
    ...usePoll(CALM_MS),
  });
}

/** Whether jobs can be taken; a refusal with reasons is an answer too. */
export function useReady() {
  return useQuery({
    queryKey: ["ready"],
    queryFn: async ({ signal }): Promise<Ready | { status: "not_ready"; reasons: string[] }> => {
      try {
        return await get<Ready>("/ready", {}, signal);
      } catch (error) {
        if (error instanceof ApiError && error.code === "not_ready") {
          return { status: "not_ready", reasons: error.problem.reasons ?? [error.message] };
        }
        throw error;
      }
    },
    ...usePoll(CALM_MS),
  });
}

const server = {
  queryKey: ["server"],
  queryFn: ({ signal }: { signal: AbortSignal }) => get<Server>("/server", {}, signal),
};

/** The Redis server's own figures. */
export function useServer() {
  return useQuery({ ...server, ...usePoll(CALM_MS) });
}

/** What the names of all keys begin with, where this browser's key may know it. */
export function useNamespace(): string | undefined {
  return useQuery({ ...server, staleTime: Number.POSITIVE_INFINITY, retry: false }).data?.namespace;
}

export function useVersion() {
  return useQuery({
    queryKey: ["health"],
    queryFn: ({ signal }) => get<{ version: string }>("/health", {}, signal).then((its) => its.version),
    staleTime: 300_000,
  });
}

export function useJob(id: string) {
  const poll = usePoll(FAST_MS);
  return useQuery({
    queryKey: ["job", id],
    queryFn: ({ signal }) => fetchJob(id, signal),
    refetchInterval: (query) => {
      const usual = poll.refetchInterval(query);
      // The stream of all events tells of its state, not of what a run says meanwhile.
      return usual === STREAMED_MS && query.state.data?.state === "running" ? FAST_MS : usual;
    },
  });
}

export const PAGE = 100;
const TAIL_PAGES = 2;

/** Pages of jobs by cursor. */
export function useJobs(filter: JobFilter, tail: boolean) {
  const poll = usePoll(FAST_MS);
  return useInfiniteQuery({
    queryKey: ["jobs", filter],
    queryFn: ({ pageParam, signal }) => listJobs(filter, PAGE, pageParam, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next_cursor,
    placeholderData: keepPreviousData,
    // Only near the top: all pages that are open would be asked again.
    refetchInterval: (query) =>
      tail && (query.state.data?.pages.length ?? 0) <= TAIL_PAGES ? poll.refetchInterval(query) : false,
  });
}
