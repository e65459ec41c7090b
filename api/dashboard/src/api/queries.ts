/** What pages ask for, how long it is fresh and how often it is asked again. */
import {
  keepPreviousData, QueryClient, useInfiniteQuery, useQuery,
} from "@tanstack/react-query";

import { live } from "@/lib/settings";
import { useStore } from "@/lib/store";

import { ApiError, get, path } from "./client";
import { fetchJob, listJobs, type JobFilter } from "./jobs";
import { streaming } from "./stream";
import type { JobType, Queue, Ready, Worker } from "./types";

export const FAST_MS = 2000;
export const CALM_MS = 5000;
const STREAMED_MS = 15_000;
const WORST_MS = 60_000;

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

/** How often to ask again: not at all while paused, seldom while events say what is new, and ever more
 * seldom while it fails. A hidden tab asks nothing. */
export function usePoll(ms: number): { refetchInterval: (query: Asked) => number | false } {
  const on = useStore(live);
  const streamed = useStore(streaming);
  const usual = streamed ? Math.max(STREAMED_MS, ms) : ms;
  return {
    refetchInterval: (query) => {
      if (!on) return false;
      const failures = query.state.fetchFailureCount + (query.state.status === "error" ? 3 : 0);
      return failures === 0 ? usual : Math.min(usual * 2 ** failures, WORST_MS);
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
    ...poll,
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
