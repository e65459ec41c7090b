/** A value that components follow, and that may outlive the page. */
import { useSyncExternalStore } from "react";

export interface Store<T> {
  get(): T;
  set(value: T): void;
  subscribe(listener: () => void): () => void;
}

export function store<T>(initial: T): Store<T> {
  let value = initial;
  const listeners = new Set<() => void>();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of listeners) listener();
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** A store whose value is kept in the browser, as JSON. What was kept in another form is forgotten. */
export function kept<T>(name: string, initial: T, fits: (value: unknown) => value is T): Store<T> {
  const key = `taskq.${name}`;
  let found = initial;
  try {
    const text = localStorage.getItem(key);
    const value: unknown = text === null ? initial : JSON.parse(text);
    if (fits(value)) found = value;
  } catch {
    // Storage may be forbidden or hold anything: the default does.
  }
  const its = store(found);
  its.subscribe(() => {
    try {
      localStorage.setItem(key, JSON.stringify(its.get()));
    } catch {
      // It holds for as long as the page does.
    }
  });
  return its;
}

export function useStore<T>(its: Store<T>): T {
  return useSyncExternalStore(its.subscribe, its.get);
}
