/**
 * One stream of events for the whole page: what it tells is asked for anew, soon but not at once.
 *
 * It goes on where it broke off (`Last-Event-ID`). While it is there, polling is only a safety net; where
 * it cannot be had, polling does it all. A hidden tab has none, so that one left open overnight costs nothing.
 */
import type { QueryClient } from "@tanstack/react-query";

import { apiKey } from "@/lib/key";
import { live } from "@/lib/settings";
import { EventParser, type ServerEvent } from "@/lib/sse";
import { store } from "@/lib/store";

import { address, authorized } from "./client";

/** Whether events come now. */
export const streaming = store(false);

const LINGER_MS = 20_000;
const WORST_MS = 60_000;
const GATHER_MS = 900;
/** The server says something every 15 s: after this silence the connection is taken for dead. */
const SILENCE_MS = 40_000;

export function followEvents(client: QueryClient): void {
  let running: AbortController | null = null;
  let linger: ReturnType<typeof setTimeout> | undefined;
  const wanted = () => live.get() && !document.hidden;
  const stop = () => {
    running?.abort();
    running = null;
    streaming.set(false);
  };
  const look = () => {
    clearTimeout(linger);
    if (!wanted()) {
      linger = setTimeout(stop, live.get() ? LINGER_MS : 0);
    } else if (running === null) {
      running = new AbortController();
      void client.invalidateQueries();
      void keepReading(client, running.signal);
    }
  };
  document.addEventListener("visibilitychange", look);
  live.subscribe(look);
  apiKey.subscribe(() => {
    stop();
    look();
  });
  look();
}

async function keepReading(client: QueryClient, signal: AbortSignal): Promise<void> {
  const parser = new EventParser();
  const gather = gatherer(client, signal);
  let failures = 0;
  while (!signal.aborted) {
    try {
      await read(parser, signal, gather, () => {
        failures = 0;
      });
    } catch {
      failures += 1;
    }
    streaming.set(false);
    if (!signal.aborted) await pause(Math.min(parser.retryMs * 2 ** Math.max(0, failures - 1), WORST_MS), signal);
  }
}

async function read(parser: EventParser, signal: AbortSignal, gather: (event: ServerEvent) => void, works: () => void): Promise<void> {
  const silent = new AbortController();
  const either = AbortSignal.any([signal, silent.signal]);
  let watch = setTimeout(() => silent.abort(), SILENCE_MS);
  try {
    const headers = authorized(parser.lastId === "" ? {} : { "Last-Event-ID": parser.lastId });
    const answer = await fetch(address("/events"), {
      headers: { ...headers, Accept: "text/event-stream" }, signal: either, cache: "no-store", credentials: "same-origin", redirect: "error",
    });
    if (!answer.ok || answer.body === null) {
      await answer.body?.cancel();
      throw new Error(`events: ${answer.status}`);
    }
    streaming.set(true);
    works();
    const pieces = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await pieces.read();
      if (done) return;
      clearTimeout(watch);
      watch = setTimeout(() => silent.abort(), SILENCE_MS);
      for (const event of parser.take(value)) gather(event);
    }
  } finally {
    clearTimeout(watch);
  }
}

/** Gathers what events are about, and asks for it anew once in a while: a thousand a second cost as much as one. */
function gatherer(client: QueryClient, signal: AbortSignal): (event: ServerEvent) => void {
  const jobs = new Set<string>();
  let all = false;
  let moved = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const flush = () => {
    timer = undefined;
    if (signal.aborted) return;
    if (all) void client.invalidateQueries();
    else {
      if (moved) for (const key of ["queues", "jobs", "workers"]) void client.invalidateQueries({ queryKey: [key] });
      for (const id of jobs) void client.invalidateQueries({ queryKey: ["job", id] });
    }
    jobs.clear();
    all = moved = false;
  };
  return ({ event, data }) => {
    if (event === "reset") all = true;
    else {
      moved ||= event === "state";
      for (const id of idsIn(data)) if (client.getQueryState(["job", id]) !== undefined) jobs.add(id);
    }
    if (all || moved || jobs.size > 0) timer ??= setTimeout(flush, GATHER_MS);
  };
}

function idsIn(data: string): string[] {
  try {
    const value = JSON.parse(data) as { id?: unknown; jobs?: { id?: unknown }[] };
    return [value.id, ...(value.jobs ?? []).map((job) => job.id)].filter((id): id is string => typeof id === "string");
  } catch {
    return [];
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    // Not all at once: a restarted API meets a hundred tabs.
    const timer = setTimeout(done, ms * (0.75 + Math.random() / 2));
    signal.addEventListener("abort", done);
  });
}
