/** One clock for all ages on the page: it ticks each second, and not at all in a hidden tab. */
import { useSyncExternalStore } from "react";

import { serverNow } from "@/api/client";

let now = serverNow();
let timer: ReturnType<typeof setInterval> | undefined;
const listeners = new Set<() => void>();

function tick(): void {
  now = serverNow();
  for (const listener of listeners) listener();
}

function follow(): void {
  clearInterval(timer);
  timer = undefined;
  if (listeners.size > 0 && !document.hidden) {
    tick();
    timer = setInterval(tick, 1000);
  }
}

document.addEventListener("visibilitychange", follow);

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  if (listeners.size === 1) follow();
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) follow();
  };
}

/** The server's time in ms, renewed each second. */
export const useNow = (): number => useSyncExternalStore(subscribe, () => now);
